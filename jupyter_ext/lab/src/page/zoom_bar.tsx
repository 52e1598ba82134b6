/** What pictures and charts with a zoom share: the line that names the visible part, and the keys that choose one. */

import type { KeyboardEvent, ReactElement } from 'react';

import { moved } from './stretch';
import type { Stretch } from './stretch';

/** The visible part of the x axis; null shows all of it. */
export interface Zoom {
  readonly stretch: Stretch | null;
  readonly onStretch: (stretch: Stretch | null) => void;
  /** A place of the x axis in words. */
  readonly named: (x: number) => string;
}

/** `what` is "picture" or "chart". */
export function ZoomBar(props: Zoom & { what: string }): ReactElement {
  const { stretch, onStretch, named } = props;
  return (
    <div className="jp-edt-toolbar" role="status">
      {stretch === null ? (
        <span className="jp-edt-hint">Drag across the {props.what} to see that part in detail.</span>
      ) : (
        <>
          <span>
            From {named(stretch.start)} to {named(stretch.end)}.
          </span>
          <button type="button" className="jp-edt-button" onClick={() => onStretch(null)}>
            Show all
          </button>
        </>
      )}
    </div>
  );
}

/** What the keys of `zoomByKey` do, for an aria-label. */
export const ZOOM_KEYS = 'Shift and left or right choose a part, up and down zoom, Escape shows all';

/** Zoom by a key; `whole` is all of the x axis, null while it is not known. */
export function zoomByKey(event: KeyboardEvent, zoom: Zoom, whole: Stretch | null): void {
  const next =
    event.key === 'Escape'
      ? zoom.stretch === null
        ? undefined
        : null
      : event.shiftKey && whole !== null
        ? moved(event.key, zoom.stretch, whole)
        : undefined;
  if (next !== undefined) {
    event.preventDefault();
    zoom.onStretch(next);
  }
}
