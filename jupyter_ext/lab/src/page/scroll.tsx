/** A scroll of lines, as long as it may be, that is read rather than chosen from; it stays at its end while the reader is there. */

import { useLayoutEffect, useRef } from 'react';
import type { ReactElement, ReactNode } from 'react';

import { useRowsInView } from '../rows_in_view';

const BEYOND = 20;

/** `count` rows of `height` px; `row(i)` draws one, absolutely placed by the list. */
export function Scroll(props: {
  count: number;
  height: number;
  label: string;
  className?: string;
  follow?: boolean;
  onFollow?: (follows: boolean) => void;
  row: (index: number) => ReactNode;
}): ReactElement {
  const { count, height, follow = false, onFollow } = props;
  const { box, first, last, seen, scrolled } = useRowsInView(count, height, BEYOND);
  // Where the list itself has scrolled to: what ends elsewhere was the reader.
  const own = useRef(-1);

  useLayoutEffect(() => {
    const node = box.current;
    if (node !== null && follow) {
      node.scrollTop = node.scrollHeight;
      own.current = node.scrollTop;
      scrolled(node.scrollTop);
    }
  }, [count, follow, seen]);

  const onScroll = (): void => {
    const node = box.current;
    if (node === null) {
      return;
    }
    scrolled(node.scrollTop);
    const atEnd = node.scrollTop + node.clientHeight >= node.scrollHeight - height;
    if (follow && !atEnd && node.scrollTop < own.current - height) {
      onFollow?.(false);
    } else if (!follow && atEnd && node.scrollTop > 0) {
      onFollow?.(true);
    }
    own.current = node.scrollTop;
  };

  const rows: ReactNode[] = [];
  for (let index = first; index < last; index++) {
    rows.push(
      <div key={index} className="jp-edt-windowed-row" style={{ top: index * height, height }} role="listitem">
        {props.row(index)}
      </div>
    );
  }
  return (
    <div
      ref={box}
      className={`jp-edt-windowed ${props.className ?? ''}`}
      onScroll={onScroll}
      tabIndex={0}
      role="list"
      aria-label={props.label}
    >
      <div className="jp-edt-windowed-all" style={{ height: count * height }}>
        {rows}
      </div>
    </div>
  );
}
