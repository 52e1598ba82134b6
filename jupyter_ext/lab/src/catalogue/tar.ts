/**
 * Files as one tar archive, without reading them: the archive is a list of headers and of the files themselves, which the
 * browser reads when it sends them. Pure.
 */

/** A file and its name in the archive, with slashes between folders. */
export interface Entry {
  readonly name: string;
  readonly file: Blob;
}

const BLOCK = 512;
const NAME_BYTES = 100;
/** What eleven octal digits can say. */
const SIZE_LIMIT = 8 ** 11;
const TEXT = new TextEncoder();

/** The archive of these files. */
export function tar(entries: readonly Entry[]): Blob {
  const parts: BlobPart[] = [];
  for (const { name, file } of entries) {
    const more = records(name, file.size);
    if (more.length > 0) {
      parts.push(header('pax', more.length, 'x'), more, padding(more.length));
    }
    parts.push(header(name, file.size, '0'), file, padding(file.size));
  }
  return new Blob([...parts, new Uint8Array(2 * BLOCK)], { type: 'application/x-tar' });
}

/** What does not fit into a header of 1988: names that are long or not English, and very large files. */
function records(name: string, size: number): Uint8Array<ArrayBuffer> {
  const said: string[] = [];
  if (TEXT.encode(name).length > NAME_BYTES || /[^\x00-\x7f]/.test(name)) {
    said.push(record('path', name));
  }
  if (size >= SIZE_LIMIT) {
    said.push(record('size', String(size)));
  }
  return TEXT.encode(said.join(''));
}

/** "<its own length> key=value\n", where the length counts its own digits. */
function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const bytes = TEXT.encode(rest).length;
  let length = bytes + String(bytes).length;
  length = bytes + String(length).length;
  return `${length}${rest}`;
}

function header(name: string, size: number, kind: string): Uint8Array<ArrayBuffer> {
  const block = new Uint8Array(BLOCK);
  const put = (at: number, text: string, most: number): void => block.set(TEXT.encode(text).subarray(0, most), at);
  put(0, name, NAME_BYTES);
  put(100, '0000644\0', 8);
  put(108, '0000000\0', 8);
  put(116, '0000000\0', 8);
  put(124, `${(size < SIZE_LIMIT ? size : 0).toString(8).padStart(11, '0')}\0`, 12);
  put(136, '00000000000\0', 12);
  put(148, ' '.repeat(8), 8);
  put(156, kind, 1);
  put(257, 'ustar\x0000', 8);
  const sum = block.reduce((total, byte) => total + byte, 0);
  put(148, `${sum.toString(8).padStart(6, '0')}\0 `, 8);
  return block;
}

function padding(size: number): Uint8Array<ArrayBuffer> {
  return new Uint8Array((BLOCK - (size % BLOCK)) % BLOCK);
}
