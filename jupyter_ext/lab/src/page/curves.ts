/** Curves as a chart shows them: smoothed, on a logarithmic scale, in one table over a common x axis. Pure. */

import uPlot from 'uplot';

/** Numbers over an x axis; null is a loss that is not a number. */
export interface Points {
  readonly x: readonly number[];
  readonly loss: readonly (number | null)[];
}

/** One curve of a chart. */
export interface Line {
  readonly label: string;
  readonly points: Points;
  readonly colour: string;
  /** Pixels; 0 for no line. */
  readonly width: number;
  readonly dash?: readonly number[];
  readonly faint?: boolean;
  /** Each point has a dot, also where points are dense. */
  readonly dots?: boolean;
}

/** Numbers of workers, each from its x to the next. */
export interface Steps {
  readonly x: readonly number[];
  readonly count: readonly number[];
}

/** Points at either end whose mean would be one of very few. */
const OUTERMOST = 6;

/**
 * The moving mean of the points: `smooth` is from 0, no line, to 1, over a third of all points. Near an end the window
 * shrinks to as many points before as after, and at the end itself a straight line through them counts. It is the line of
 * the static picture, edt_sdk/pictures/curves.py.
 */
export function smoothed(points: Points, smooth: number): Points {
  const known = points.x.map((x, i) => [x, points.loss[i]] as const).filter((p): p is [number, number] => p[1] != null);
  const half = Math.round((Math.min(1, Math.max(0, smooth)) * known.length) / 6);
  if (half < 1) {
    return { x: [], loss: [] };
  }
  const loss = known.map((_, at) => {
    const reach = Math.max(Math.min(half, at, known.length - 1 - at), Math.min(half, OUTERMOST));
    const first = Math.max(0, at - reach);
    return through(known.slice(first, at + reach + 1).map(([, value]) => value), at - first);
  });
  return { x: known.map(([x]) => x), loss };
}

/** The value at a position of the straight line fitted to these values. */
function through(values: readonly number[], at: number): number {
  const count = values.length;
  const middle = (count - 1) / 2;
  const mean = values.reduce((sum, value) => sum + value / count, 0);
  if (at === middle) {
    return mean;
  }
  // The squares of the places around their mean sum up to (count³ - count) / 12.
  const slope = (values.reduce((sum, value, place) => sum + (place - middle) * (value - mean), 0) * 12) / (count ** 3 - count);
  return mean + slope * (at - middle);
}

/** The least loss above 0 divided by 1.2, the lower end of a logarithmic scale; null where no loss is above 0. */
export function lowest(lines: readonly Line[]): number | null {
  let least = Infinity;
  for (const { points } of lines) {
    for (const value of points.loss) {
      if (value !== null && value > 0 && value < least) {
        least = value;
      }
    }
  }
  return Number.isFinite(least) ? least / 1.2 : null;
}

/**
 * One table: the x of all lines, then a column for each line, and one for the workers if there are any. A place where a line has no point
 * is undefined. `floor` replaces smaller losses, which a logarithmic scale cannot show.
 */
export function table(lines: readonly Line[], workers: Steps, floor: number | null): uPlot.AlignedData {
  const columns = lines.map(({ points }) => {
    // A clock that was set back must not make a line run backwards.
    const order = points.x.map((_, i) => i).sort((a, b) => points.x[a]! - points.x[b]!);
    const loss = order.map(i => points.loss[i]!);
    return [
      order.map(i => points.x[i]!),
      floor === null ? loss : loss.map(value => (value === null ? null : Math.max(floor, value)))
    ] as uPlot.AlignedData;
  });
  const joined = uPlot.join(columns);
  if (workers.x.length === 0) {
    return joined;
  }
  const [xs] = joined;
  let step = -1;
  const counts = Array.from(xs, x => {
    while (step + 1 < workers.x.length && workers.x[step + 1]! <= x) {
      step += 1;
    }
    return workers.count[step];
  });
  return [...joined, counts] as uPlot.AlignedData;
}
