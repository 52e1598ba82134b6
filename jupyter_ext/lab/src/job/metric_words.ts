/** The metrics that a trained model can be tested with: what they are called, which are offered, a value of one. Pure. */

import { ELASTIC, type IJobView } from '../views';

/** `[name, label]` of those that the form offers; Python takes any top<K>. */
export const METRICS: readonly (readonly [string, string])[] = [
  ['loss', 'Loss'],
  ['accuracy', 'Accuracy'],
  ['top5', 'Top 5'],
  ['precision', 'Precision'],
  ['recall', 'Recall'],
  ['f1', 'F1'],
  ['iou', 'IoU'],
  ['confusion', 'Confusion matrix']
];

/** What to begin with: a training that tells no accuracy has no classes, and a loss is all there is. */
export function likely(job: IJobView): string[] {
  const known = [job.progress?.accuracy, job.progress?.test_accuracy];
  return known.every(value => value === null || value === undefined) ? ['loss'] : ['loss', 'accuracy', 'confusion'];
}

/** "top10" → "Top 10". */
export function metricName(name: string): string {
  return METRICS.find(([known]) => known === name)?.[1] ?? name.replace(/^top(?=\d)/, 'Top ');
}

/** Fractions as per cent; the loss, and what only the script knows (named ""), as they are. */
export function metricValue(name: string, value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) {
    return value === undefined ? '–' : 'not a number';
  }
  return name === 'loss' || name === '' ? String(Number(value.toPrecision(6))) : `${(100 * value).toFixed(2)} %`;
}

/** True for a job whose training the elastic engine does: nobody else knows its model and its test data. */
export function testable(job: IJobView): boolean {
  return job.framework === ELASTIC && !job.validates;
}
