/** Files that a person has chosen or dropped, with their paths, and what they are called together. */

import type { Entry } from './tar';

/** A choice: its files, and a name for it. */
export interface Chosen {
  readonly name: string;
  readonly entries: readonly Entry[];
  readonly bytes: number;
}

/** What of a person's folder nobody wants elsewhere. */
const LITTER = new Set(['.DS_Store', 'Thumbs.db', 'desktop.ini']);

/** What an input of files has. */
export function ofInput(files: FileList): Chosen {
  return together([...files].map(file => ({ name: file.webkitRelativePath || file.name, file })));
}

/** What was dropped; folders are looked into. Call it in the event's own turn: afterwards it has nothing any more. */
export async function ofDrop(data: DataTransfer): Promise<Chosen> {
  const dropped = [...data.items].map(item => item.webkitGetAsEntry() ?? item.getAsFile());
  const found: Entry[] = [];
  for (const each of dropped) {
    if (each instanceof File) {
      found.push({ name: each.name, file: each });
    } else if (each !== null) {
      await look(each, found);
    }
  }
  return together(found);
}

async function look(entry: FileSystemEntry, found: Entry[]): Promise<void> {
  if (entry.isFile) {
    const file = await new Promise<File>((done, failed) => (entry as FileSystemFileEntry).file(done, failed));
    found.push({ name: entry.fullPath.replace(/^\/+/, ''), file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    // A folder is told in pieces, until one is empty.
    const piece = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (piece.length === 0) {
      return;
    }
    for (const each of piece) {
      await look(each, found);
    }
  }
}

/** The one folder that all lie in gives its name, and is not part of theirs. */
function together(all: readonly Entry[]): Chosen {
  const wanted = all.filter(({ name }) => !LITTER.has(name.slice(name.lastIndexOf('/') + 1)));
  const tops = new Set(wanted.map(({ name }) => name.slice(0, name.indexOf('/') + 1)));
  const [top = ''] = tops;
  const inside = tops.size === 1 && top !== '';
  const entries = inside ? wanted.map(({ name, file }) => ({ name: name.slice(top.length), file })) : wanted;
  const [first] = entries;
  const name = inside ? top.slice(0, -1) : entries.length === 1 && first !== undefined ? stem(first.name) : '';
  return { name: usable(name), entries, bytes: entries.reduce((sum, { file }) => sum + file.size, 0) };
}

function stem(name: string): string {
  return name.replace(/\.(tar\.gz|tgz|[^.]+)$/i, '');
}

/** As the catalogue takes names. */
function usable(name: string): string {
  return name.replace(/[^\w.-]+/g, '-').replace(/^[^A-Za-z0-9]+|-+$/g, '').slice(0, 100);
}
