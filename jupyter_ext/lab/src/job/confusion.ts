/** A confusion matrix as one reads it: shares of a label, the mistakes that are made most, a cell in words. Pure. */

import { percent } from '../words';

/** Rows are labels, columns what the model said. */
export type Matrix = readonly (readonly number[])[];

/** One cell off the diagonal. */
export interface Mistake {
  readonly label: number;
  readonly said: number;
  readonly times: number;
  /** Of the samples with that label, from 0 to 1. */
  readonly share: number;
}

/** Samples of each label; 0 where it never occurs. */
export function totals(matrix: Matrix): number[] {
  return matrix.map(row => row.reduce((sum, times) => sum + times, 0));
}

/** The `most` mistakes made most often, the worst first; of equals the one with the larger share. */
export function worst(matrix: Matrix, most: number): Mistake[] {
  const of = totals(matrix);
  const found: Mistake[] = [];
  matrix.forEach((row, label) =>
    row.forEach((times, said) => {
      if (times > 0 && said !== label) {
        found.push({ label, said, times, share: times / (of[label] ?? times) });
      }
    })
  );
  return found.sort((a, b) => b.times - a.times || b.share - a.share).slice(0, most);
}

/** "3 was taken for 5: 12 of 180 (6.67 %)". */
export function cellWords(matrix: Matrix, label: number, said: number): string {
  const times = matrix[label]?.[said] ?? 0;
  const all = (matrix[label] ?? []).reduce((sum, each) => sum + each, 0);
  const what = label === said ? `${label} was recognised` : `${label} was taken for ${said}`;
  return all === 0 ? `${label} never occurs` : `${what}: ${times} of ${all} (${percent(times / all)})`;
}
