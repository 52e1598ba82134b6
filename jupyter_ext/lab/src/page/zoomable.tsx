/**
 * A picture of which a stretch can be looked at in detail: dragged over with the pointer, or chosen with Shift and the arrow
 * keys; a double click or Escape shows all of it again. What is between the points comes from the server, which draws it.
 */

import { useRef, useState } from 'react';
import type { KeyboardEvent, PointerEvent, ReactElement } from 'react';

import { Picture } from './picture';
import { chosen } from './stretch';
import type { Across, Stretch } from './stretch';
import { ZOOM_KEYS, ZoomBar, zoomByKey } from './zoom_bar';
import type { Zoom } from './zoom_bar';

/** Pixels below which a drag was a click. */
const LEAST = 6;

/** `query` must not have the stretch, which is added. */
export function ZoomablePicture(
  props: Zoom & {
    path: string;
    query: Readonly<Record<string, string | number>>;
    seconds: number | null;
    what: string;
  }
): ReactElement {
  const { stretch, onStretch } = props;
  const box = useRef<HTMLDivElement>(null);
  const whole = useRef<Stretch | null>(null);
  /** Pixels from the left of the window, where a drag began and where it is now. */
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);

  const across = (): Across | null => {
    const svg = box.current?.querySelector('.jp-edt-drawn-canvas')?.shadowRoot?.querySelector('svg');
    const said = (svg?.getAttribute('data-across') ?? '').split(' ').map(Number);
    const [left, right, first, last] = said;
    if (!svg || left === undefined || right === undefined || first === undefined || last === undefined) {
      return null;
    }
    const place = svg.getBoundingClientRect();
    const scale = place.width / Number(svg.getAttribute('width'));
    const found = { left: place.left + left * scale, right: place.left + right * scale, first, last };
    if (stretch === null) {
      whole.current = { start: first, end: last };
    }
    return found;
  };

  const down = (event: PointerEvent): void => {
    if (event.target instanceof Element && event.target.closest('button') !== null) {
      return; // of a picture that could not be renewed
    }
    const there = across();
    if (event.button !== 0 || there === null || event.clientX < there.left - LEAST || event.clientX > there.right + LEAST) {
      return;
    }
    event.currentTarget.setPointerCapture(event.pointerId);
    setDrag({ from: event.clientX, to: event.clientX });
  };
  const up = (): void => {
    const there = across();
    if (drag !== null && there !== null && Math.abs(drag.to - drag.from) >= LEAST) {
      onStretch(chosen(there, drag.from, drag.to));
    }
    setDrag(null);
  };
  const key = (event: KeyboardEvent): void => {
    if (event.key === 'Escape' && drag !== null) {
      event.preventDefault();
      setDrag(null);
    }
    across();
    zoomByKey(event, props, whole.current);
  };

  const zoomed: Record<string, number> = stretch === null ? {} : { start: stretch.start, end: stretch.end };
  const offset = box.current?.getBoundingClientRect().left ?? 0;
  return (
    <>
      <ZoomBar {...props} what="picture" />
      <div
        className="jp-edt-zoomable"
        ref={box}
        tabIndex={0}
        role="group"
        aria-label={`Picture; ${ZOOM_KEYS}`}
        onPointerDown={down}
        onPointerMove={event => drag !== null && setDrag({ from: drag.from, to: event.clientX })}
        onPointerUp={up}
        onPointerCancel={() => setDrag(null)}
        onDoubleClick={() => onStretch(null)}
        onKeyDown={key}
      >
        <Picture path={props.path} query={{ ...props.query, ...zoomed }} seconds={props.seconds} what={props.what} />
        {drag !== null && (
          <div
            className="jp-edt-zoomed"
            style={{ left: Math.min(drag.from, drag.to) - offset, width: Math.abs(drag.to - drag.from) }}
          />
        )}
      </div>
    </>
  );
}
