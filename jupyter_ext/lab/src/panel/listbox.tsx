/** A list of any length of which only the rows in sight are in the document; moved through by keys as by the wheel. */
import { type KeyboardEvent, type ReactNode, useLayoutEffect, useRef, useState } from 'react';

import { useRowsInView } from '../rows_in_view';

const BEYOND = 6;

export interface IListboxProps<T> {
  items: readonly T[];
  /** Height of each row, pixels. */
  rowHeight: number;
  keyOf: (item: T) => string;
  label: string;
  row: (item: T) => ReactNode;
  attributes: (item: T) => Record<string, string>;
  onOpen: (item: T) => void;
  /** Set until the chosen row has taken the focus. */
  entering?: { current: boolean } | undefined;
}

/** Rows of which one is chosen: by arrow keys, a click or Tab; Enter opens it. */
export function Listbox<T>(props: IListboxProps<T>): JSX.Element {
  const { items, rowHeight, keyOf, label, row, attributes, onOpen, entering } = props;
  const { box, first, last, seen, scrolled } = useRowsInView(items.length, rowHeight, BEYOND);
  const [active, setActive] = useState('');
  const focus = useRef(false);

  const at = Math.max(
    0,
    items.findIndex(item => keyOf(item) === active)
  );
  useLayoutEffect(() => {
    if (focus.current || entering?.current) {
      focus.current = false;
      if (entering) {
        entering.current = false;
      }
      box.current?.querySelector<HTMLElement>('[tabindex="0"]')?.focus({ preventScroll: true });
    }
  });

  const go = (index: number): void => {
    const to = Math.max(0, Math.min(items.length - 1, index));
    const item = items[to];
    const node = box.current;
    if (item === undefined || !node) {
      return;
    }
    const y = to * rowHeight;
    node.scrollTop = Math.min(y, Math.max(node.scrollTop, y + rowHeight - node.clientHeight));
    focus.current = true;
    scrolled(node.scrollTop);
    setActive(keyOf(item));
  };
  const onKey = (event: KeyboardEvent): void => {
    const page = Math.max(1, Math.floor(seen / rowHeight) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    const step = steps[event.key];
    if (step !== undefined) {
      go(at + step);
    } else if (event.key === 'Home' || event.key === 'End') {
      go(event.key === 'Home' ? 0 : items.length - 1);
    } else if ((event.key === 'Enter' || event.key === ' ') && items[at] !== undefined) {
      onOpen(items[at]);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  // The row that Tab leads to is there even when it is scrolled out of sight.
  const shown = new Set(Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i));
  if (items.length) {
    shown.add(at);
  }
  return (
    <div ref={box} className="jp-edt-list" onScroll={event => scrolled(event.currentTarget.scrollTop)} onKeyDown={onKey}>
      <div role="listbox" aria-label={label} style={{ height: items.length * rowHeight, position: 'relative' }}>
        {[...shown]
          .sort((a, b) => a - b)
          .map(index => {
            const item = items[index]!;
            return (
              <div
                key={keyOf(item)}
                role="option"
                aria-selected={index === at}
                aria-setsize={items.length}
                aria-posinset={index + 1}
                tabIndex={index === at ? 0 : -1}
                className="jp-edt-row"
                style={{ top: index * rowHeight, height: rowHeight }}
                onClick={() => {
                  setActive(keyOf(item));
                  onOpen(item);
                }}
                onFocus={() => setActive(keyOf(item))}
                {...attributes(item)}
              >
                {row(item)}
              </div>
            );
          })}
      </div>
    </div>
  );
}
