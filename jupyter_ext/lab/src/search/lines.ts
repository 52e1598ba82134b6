/** The lines of a picture in parallel coordinates, and which of them cross all chosen stretches of its axes. Pure. */

/** A line of a trial: its height at each axis, in pixels of the picture from its top. */
export interface ILine {
  readonly trial: number;
  readonly heights: readonly number[];
}

/** A chosen part of an axis, in pixels of the picture from its top. */
export interface IPart {
  readonly top: number;
  readonly bottom: number;
}

/** By axis, from the left. */
export type Parts = ReadonlyMap<number, IPart>;

/** The heights of the points of a path such as "M12 40L96 71.5". */
export function heights(path: string): number[] {
  return path.split('L').map(point => Number(point.split(' ')[1]));
}

/** The trials whose lines cross every chosen part, in the order of `lines`. */
export function within(lines: readonly ILine[], parts: Parts): number[] {
  const crosses = ({ heights }: ILine): boolean => [...parts].every(([axis, { top, bottom }]) => heights[axis]! >= top && heights[axis]! <= bottom);
  return lines.filter(crosses).map(line => line.trial);
}

/** The upper or the lower half of a part, or of the whole axis. */
export function half(part: IPart, upper: boolean): IPart {
  const middle = (part.top + part.bottom) / 2;
  return upper ? { ...part, bottom: middle } : { ...part, top: middle };
}
