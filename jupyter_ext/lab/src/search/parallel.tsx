/**
 * The trials of a search in parallel coordinates. Of each axis a part can be chosen, by a drag along it or by keys; the trials
 * whose lines cross all chosen parts stay visible and are listed below. The server draws, and is asked for the list alone.
 */

import { useRef, useState } from 'react';
import type { KeyboardEvent, PointerEvent, ReactElement } from 'react';

import { Button } from '../state';
import type { ISearchView } from '../views';
import { count, grouped } from '../words';

import { type IPart, type ILine, type Parts, half, heights, within } from './lines';
import { SearchPicture, Trials } from './parts';

const NEAR = 30; // pixels beside an axis that belong to it
const LEAST = 4; // pixels below which a drag was a click
const LISTED = 50;
const KEYS = 'Left and right go to an axis, up and down choose the upper or the lower half of what is chosen there, Escape shows all';

/** What is on the page: the picture, the place of each axis and its whole length, and a line a trial, the worst one first. */
interface IShown {
  readonly picture: SVGSVGElement;
  readonly axes: readonly { readonly x: number; readonly whole: IPart }[];
  readonly lines: readonly ILine[];
}

export function ParallelTrials({ view }: { view: ISearchView }): ReactElement {
  const shown = useRef<IShown | null>(null);
  const [parts, setParts] = useState<Parts>(new Map());
  const latest = useRef(parts);
  const drag = useRef<{ axis: number; from: number } | null>(null);
  const axis = useRef(0);
  const [listed, setListed] = useState<readonly number[]>([]);

  const show = (next: Parts): number[] => {
    latest.current = next;
    const chosen = shown.current === null ? [] : mark(shown.current, next);
    setParts(next);
    return chosen;
  };
  const choose = (next: Parts): void => setListed(show(next).reverse());
  const drawn = (picture: SVGSVGElement): void => {
    const before = shown.current?.picture.getAttribute('width');
    shown.current = seen(picture);
    // In another width the lines lie elsewhere.
    choose(before === picture.getAttribute('width') ? latest.current : new Map());
  };
  const dragged = (event: PointerEvent): Parts | null => {
    if (drag.current === null || shown.current === null) {
      return null;
    }
    const [, y] = place(event, shown.current.picture);
    const { axis: at, from } = drag.current;
    const part = { top: Math.min(from, y), bottom: Math.max(from, y) };
    const next = new Map(latest.current);
    next.delete(at);
    return part.bottom - part.top < LEAST ? next : next.set(at, part);
  };
  const down = (event: PointerEvent): void => {
    if (event.button !== 0 || shown.current === null) {
      return;
    }
    const [x, y] = place(event, shown.current.picture);
    const away = shown.current.axes.map(each => Math.abs(each.x - x));
    const nearest = away.indexOf(Math.min(...away));
    if (nearest >= 0 && away[nearest]! <= NEAR) {
      event.currentTarget.setPointerCapture(event.pointerId);
      drag.current = { axis: nearest, from: y };
    }
  };
  const move = (event: PointerEvent): void => {
    const next = dragged(event);
    if (next !== null) {
      show(next);
    }
  };
  const up = (event: PointerEvent): void => {
    const next = dragged(event);
    drag.current = null;
    if (next !== null) {
      choose(next);
    }
  };
  const key = (event: KeyboardEvent): void => {
    if (shown.current === null || !['Escape', 'ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown'].includes(event.key)) {
      return;
    }
    event.preventDefault();
    const { axes } = shown.current;
    const at = axis.current;
    if (event.key === 'Escape') {
      choose(new Map());
    } else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      choose(new Map(parts).set(at, half(parts.get(at) ?? axes[at]!.whole, event.key === 'ArrowUp')));
    } else {
      axis.current = (at + (event.key === 'ArrowRight' ? 1 : axes.length - 1)) % axes.length;
    }
  };
  const all = shown.current?.lines.length ?? 0;
  return (
    <>
      <div className="jp-edt-toolbar" role="status">
        {parts.size === 0 ? (
          <span className="jp-edt-hint">Drag along an axis to list the trials that cross it there.</span>
        ) : (
          <>
            <span>
              {grouped(listed.length)} of {count(all, 'trial')}
              {listed.length > LISTED ? `, the best ${LISTED} below` : ''}.
            </span>
            <Button onClick={() => choose(new Map())}>Show all</Button>
          </>
        )}
      </div>
      <div
        className="jp-edt-zoomable"
        tabIndex={0}
        role="group"
        aria-label={`Picture; ${KEYS}`}
        onPointerDown={down}
        onPointerMove={move}
        onPointerUp={up}
        onPointerCancel={() => (drag.current = null)}
        onDoubleClick={() => choose(new Map())}
        onKeyDown={key}
      >
        <SearchPicture view={view} name="parallel" onDrawn={drawn} />
      </div>
      {parts.size > 0 && listed.length > 0 && (
        <Trials view={view} query={{ sort: 'value', numbers: listed.slice(0, LISTED).join(',') }} />
      )}
    </>
  );
}

function seen(picture: SVGSVGElement): IShown {
  const number = (of: Element, name: string): number => Number(of.getAttribute(name));
  const axes = [...picture.querySelectorAll('[data-axis]')].map(line => ({
    x: number(line, 'x1'),
    whole: { top: number(line, 'y1'), bottom: number(line, 'y2') }
  }));
  const lines = [...picture.querySelectorAll('[data-trial]')].map(path => ({
    trial: number(path, 'data-trial'),
    heights: heights(path.getAttribute('d') ?? '')
  }));
  return { picture, axes, lines };
}

/** The pointer's place in the picture's own pixels. */
function place(event: PointerEvent, picture: SVGSVGElement): [number, number] {
  const box = picture.getBoundingClientRect();
  const scale = Number(picture.getAttribute('width')) / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

/** Let the lines that do not cross all parts fade, and mark the parts. The trials that stay are returned. */
function mark({ picture, axes, lines }: IShown, parts: Parts): number[] {
  const chosen = within(lines, parts);
  const stay = new Set(chosen);
  for (const path of picture.querySelectorAll<SVGPathElement>('[data-trial]')) {
    path.style.opacity = stay.has(Number(path.getAttribute('data-trial'))) ? '' : '0.04';
  }
  picture.querySelectorAll('.jp-edt-part').forEach(part => part.remove());
  for (const [axis, { top, bottom }] of parts) {
    const bar = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    const sides = { class: 'jp-edt-part', x: axes[axis]!.x - 7, y: top, width: 14, height: bottom - top };
    Object.entries(sides).forEach(([name, value]) => bar.setAttribute(name, String(value)));
    Object.assign(bar.style, { fill: 'var(--jp-brand-color1)', opacity: '0.3' });
    picture.append(bar);
  }
  return chosen;
}
