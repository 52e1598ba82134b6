/**
 * Lines of a log as they are shown: colours of terminals removed, progress bars in their last state, long ones cut, and
 * never more of them than a browser holds with ease. Pure.
 */

import type { ILogLine } from './answers';

/** Characters of a line that are shown; the rest on demand. */
export const SHOWN = 2000;
/** Lines that are kept; of more, the newest. */
export const KEPT = 100_000;

/** A line, and the text that is shown of it. */
export interface ShownLine {
  readonly number: number;
  readonly line: ILogLine;
  readonly text: string;
  readonly cut: boolean;
}

// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;

/** What is left of a text when a terminal has shown it: no colours, and of `a\rb\rc` the last that says something. */
export function settled(text: string): string {
  const plain = text.includes('\u001b') ? text.replace(ESCAPES, '') : text;
  if (!plain.includes('\r')) {
    return plain;
  }
  const parts = plain.split('\r').filter(part => part !== '');
  return parts[parts.length - 1] ?? '';
}

/** The line as it is shown, `number` counting from 1 from the log's beginning. */
export function shown(line: ILogLine, number: number): ShownLine {
  const text = settled(line.text);
  return { number, line, text: text.slice(0, SHOWN), cut: text.length > SHOWN };
}

/** A row of the window on a log: a line, or a part of one that is wider than the window. */
export interface Row {
  readonly of: ShownLine;
  readonly text: string;
  readonly begins: boolean;
  readonly ends: boolean;
}

/** The lines in rows of at most so many characters, broken at a blank where there is one in the second half of a row. */
export function wrapped(lines: readonly ShownLine[], columns: number): Row[] {
  const rows: Row[] = [];
  for (const of of lines) {
    let at = 0;
    do {
      const rest = of.text.length - at;
      const blank = rest > columns ? of.text.lastIndexOf(' ', at + columns) : -1;
      const to = rest <= columns ? of.text.length : blank > at + columns / 2 ? blank + 1 : at + columns;
      rows.push({ of, text: of.text.slice(at, to), begins: at === 0, ends: to === of.text.length });
      at = to;
    } while (at < of.text.length);
  }
  return rows;
}

/** `old` and `more`, without the oldest beyond `KEPT`. */
export function joined(old: readonly ShownLine[], more: readonly ShownLine[]): ShownLine[] {
  const all = old.concat(more);
  return all.length > KEPT ? all.slice(all.length - KEPT) : all;
}

/** Those that contain the text, whatever its case; all for an empty one. */
export function matching(lines: readonly ShownLine[], text: string): readonly ShownLine[] {
  const wanted = text.toLowerCase();
  return wanted === '' ? lines : lines.filter(each => each.line.text.toLowerCase().includes(wanted));
}

/** Who said it: "driver", "worker 2", "elog". */
export function speaker(line: ILogLine): string {
  if (line.worker !== null) {
    return `worker ${line.worker}`;
  }
  return line.stream === 'elog' ? 'elog' : 'driver';
}
