/** A stretch of a picture's x axis: chosen by two pixels, or moved and resized by keys. Pure. */

/** From where to where, in what the x axis shows. */
export interface Stretch {
  readonly start: number;
  readonly end: number;
}

/** Where an x axis lies: its ends in pixels, and the values there. */
export interface Across {
  readonly left: number;
  readonly right: number;
  readonly first: number;
  readonly last: number;
}

/** A stretch has this part of the whole at least: below it two points would be far apart. */
const FINEST = 1e-6;

/** What lies between two pixels, in either order; what is beyond the axis is its end. */
export function chosen(axis: Across, one: number, other: number): Stretch {
  const value = (pixel: number): number => {
    const share = (Math.min(axis.right, Math.max(axis.left, pixel)) - axis.left) / (axis.right - axis.left);
    return axis.first + share * (axis.last - axis.first);
  };
  return { start: value(Math.min(one, other)), end: value(Math.max(one, other)) };
}

/**
 * What a key makes of a stretch, null for all there is, undefined where it means nothing: left and right move it by a
 * quarter, or of all choose the first and the second half; up makes it half as long, down twice.
 */
export function moved(key: string, now: Stretch | null, whole: Stretch): Stretch | null | undefined {
  const { start, end } = now ?? whole;
  const length = end - start;
  if (key === 'ArrowLeft' || key === 'ArrowRight') {
    const later = key === 'ArrowRight';
    if (now === null) {
      const middle = start + length / 2;
      return later ? { start: middle, end } : { start, end: middle };
    }
    const step = later ? Math.min(length / 4, whole.end - end) : -Math.min(length / 4, start - whole.start);
    return { start: start + step, end: end + step };
  }
  if (key === 'ArrowUp') {
    return length / 2 < FINEST * (whole.end - whole.start) ? now : { start: start + length / 4, end: end - length / 4 };
  }
  if (key === 'ArrowDown') {
    const longer = { start: Math.max(whole.start, start - length / 2), end: Math.min(whole.end, end + length / 2) };
    return longer.start <= whole.start && longer.end >= whole.end ? null : longer;
  }
  return undefined;
}
