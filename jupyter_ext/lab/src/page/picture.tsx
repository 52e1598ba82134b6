/**
 * A picture drawn by the server, as wide as there is room, in the theme's colours, drawn anew while it changes. Its
 * ticks say their causes when pointed at.
 */

import { useEffect, useLayoutEffect, useRef, useState } from 'react';
import type { ReactElement } from 'react';

import type { IPicture } from '../api';
import { Drawn } from '../drawn';
import { ZONE, useDark } from '../picture_image';

import { useEdt } from './surroundings';
import { usePolled } from './polled';
import { Failure, Loading, Stale } from './standing';

const NARROWEST = 280;
const STEP = 20;
const NOTHING: IPicture = { svg: '', says: '' };

/**
 * `path` below the API, such as "jobs/edt-1/pictures/loss".
 *
 * `seconds` is the pause between two drawings, null when it will not change any more; `what` is said while it is awaited.
 * `onDrawn` gets each drawing once it is on the page.
 */
export function Picture(props: {
  path: string;
  query?: Readonly<Record<string, string | number>>;
  seconds: number | null;
  what: string;
  onDrawn?: (picture: SVGSVGElement) => void;
}): ReactElement {
  const { api } = useEdt();
  const theme = useDark() ? 'dark' : 'light';
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);

  useLayoutEffect(() => {
    const node = box.current;
    if (node === null) {
      return;
    }
    const measure = (): void => {
      // In steps: a splitter on its way must not ask for a picture a pixel.
      const room = Math.floor(node.clientWidth / STEP) * STEP;
      if (room > 0) {
        setWidth(Math.max(NARROWEST, room));
      }
    };
    const observer = new ResizeObserver(measure);
    observer.observe(node);
    measure();
    return () => observer.disconnect();
  }, []);

  const query = { ...props.query, theme, width, zone: ZONE };
  const answer = usePolled<IPicture>(
    width === 0 ? '' : `${props.path}?${JSON.stringify(props.query ?? {})}`,
    () => (width === 0 ? Promise.resolve(NOTHING) : api.picture(props.path, query)),
    props.seconds
  );
  const again = answer.again;
  const first = useRef(true);
  useEffect(() => {
    // The first question is asked with them anyway.
    if (width > 0 && !first.current) {
      again();
    }
    first.current = width === 0;
  }, [theme, width, again]);

  // While the next one is on its way (another axis, another stretch of time) the one before stays.
  const kept = useRef({ path: '', svg: '', taken: 0 });
  if (answer.value !== null && answer.value.svg !== '') {
    kept.current = { path: props.path, svg: answer.value.svg, taken: answer.taken };
  }
  const svg = kept.current.path === props.path ? kept.current.svg : '';
  const [broken, setBroken] = useState<unknown>(null);
  const waiting = svg === '';
  return (
    <div className="jp-edt-drawn" ref={box} data-picture={props.path}>
      {waiting && answer.error === null && <Loading what={props.what} />}
      {waiting && answer.error !== null && <Failure error={answer.error} again={again} />}
      {broken !== null && <Failure error={broken} again={again} />}
      {!waiting && <Stale error={answer.error} taken={kept.current.taken} again={again} />}
      <Drawn svg={svg} hidden={waiting} className="jp-edt-drawn-canvas" onBroken={setBroken} onDrawn={props.onDrawn} />
    </div>
  );
}
