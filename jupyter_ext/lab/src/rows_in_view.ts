/** Which rows of a long list are in view: only these are put into the document, whatever the list's length. */

import { useEffect, useRef, useState } from 'react';
import type { RefObject } from 'react';

/** Set `box` on what scrolls, and tell `scrolled` where it has scrolled to, px from its top. */
export interface RowsInView {
  readonly box: RefObject<HTMLDivElement>;
  /** The first row to draw, and the one behind the last. */
  readonly first: number;
  readonly last: number;
  /** Height of what is seen of the list, px. */
  readonly seen: number;
  readonly scrolled: (top: number) => void;
}

/** Of `count` rows of `height` px; `beyond` are drawn on either side of those in view. */
export function useRowsInView(count: number, height: number, beyond: number): RowsInView {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(600);
  useEffect(() => {
    const node = box.current;
    if (node === null) {
      return;
    }
    const observer = new ResizeObserver(() => setSeen(node.clientHeight));
    observer.observe(node);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / height) - beyond);
  const last = Math.min(count, Math.ceil((top + seen) / height) + beyond);
  return { box, first, last, seen, scrolled: setTop };
}
