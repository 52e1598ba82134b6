/** The rows of the table of runs: the words in their cells, and which of them a search finds. Pure. */

import { LOOKS } from '../looks';
import type { IRunTable } from '../catalogue_schemas';
import { type JobState, isFinal } from '../views';
import { clock, lossFigure, span } from '../words';

/** The values of a run by the name of their column; what it has not is not there. */
export type Row = Readonly<Record<string, unknown>>;

/** The rows in which each word of `search` is, such as `lr=0.1` or `finished`. */
export function matching(rows: readonly Row[], search: string, now: number): readonly Row[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const textOf = (row: Row): string => Object.keys(row).map(name => `${name}=${cellWords(row, name, now)}`).join(' ').toLowerCase();
  return words.length === 0 ? rows : rows.filter(row => words.every(word => textOf(row).includes(word)));
}

/** What stands in a cell. */
export function cellWords(row: Row, name: string, now: number): string {
  const value = row[name];
  if (name === 'duration' && typeof row['started'] === 'number' && isLiving(row)) {
    return span(now - row['started']);
  }
  if (typeof value === 'number') {
    const given = Number.isInteger(value) ? String(value) : lossFigure(value);
    return name === 'duration' ? span(value) : name === 'started' ? clock(value, now) : given;
  }
  if (value === undefined || typeof value === 'boolean') {
    return value === undefined ? '–' : value ? 'yes' : 'no';
  }
  return Array.isArray(value) ? value.join(', ') : name === 'state' ? LOOKS[value as JobState].word : String(value);
}

export function isLiving(row: Row): boolean {
  return !isFinal(row['state'] as JobState);
}

/** Of a metric whose name says what is better, the place of each value from 0, the worst, to 1, the best; empty where all are the same. */
export function places(table: IRunTable): Record<string, ReadonlyMap<unknown, number>> {
  const known = table.columns.filter(({ direction }) => direction !== '');
  return Object.fromEntries(
    known.map(({ name, direction }) => {
      const values = [...new Set(table.rows.map(row => row[name]).filter(value => typeof value === 'number'))];
      values.sort((a, b) => (direction === 'maximize' ? a - b : b - a));
      return [name, new Map(values.length < 2 ? [] : values.map((value, at) => [value, at / (values.length - 1)]))];
    })
  );
}
