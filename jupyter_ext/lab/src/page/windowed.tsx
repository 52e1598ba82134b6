/**
 * A list of rows of one height, of which only those in view are in the document: as many as there may be, it scrolls.
 * It stays at its end while the reader is there.
 */

import { useEffect, useLayoutEffect, useRef, useState } from 'react';
import type { ReactElement, ReactNode } from 'react';

const BEYOND = 20;

/** `count` rows of `height` px; `row(i)` draws one, absolutely placed by the list. */
export function Windowed(props: {
  count: number;
  height: number;
  label: string;
  className?: string;
  follow?: boolean;
  onFollow?: (follows: boolean) => void;
  row: (index: number) => ReactNode;
}): ReactElement {
  const { count, height, follow = false, onFollow } = props;
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [seen, setSeen] = useState(400);
  // Where the list itself has scrolled to: what ends elsewhere was the reader.
  const own = useRef(-1);

  useEffect(() => {
    const node = box.current;
    if (node === null) {
      return;
    }
    const observer = new ResizeObserver(() => setSeen(node.clientHeight));
    observer.observe(node);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    const node = box.current;
    if (node !== null && follow) {
      node.scrollTop = node.scrollHeight;
      own.current = node.scrollTop;
      setTop(node.scrollTop);
    }
  }, [count, follow, seen]);

  const onScroll = (): void => {
    const node = box.current;
    if (node === null) {
      return;
    }
    setTop(node.scrollTop);
    const atEnd = node.scrollTop + node.clientHeight >= node.scrollHeight - height;
    if (follow && !atEnd && node.scrollTop < own.current - height) {
      onFollow?.(false);
    } else if (!follow && atEnd && node.scrollTop > 0) {
      onFollow?.(true);
    }
    own.current = node.scrollTop;
  };

  const first = Math.max(0, Math.floor(top / height) - BEYOND);
  const last = Math.min(count, Math.ceil((top + seen) / height) + BEYOND);
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
