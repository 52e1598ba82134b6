/** An SVG of the server in a shadow tree of its own: its ids and styles are nobody else's, and its parts keep their titles. */

import { useLayoutEffect, useRef } from 'react';
import type { ReactElement } from 'react';

/** The SVG of an answer, without anything that could act; an error when it is none. */
function drawing(text: string): SVGSVGElement {
  const root = new DOMParser().parseFromString(text, 'image/svg+xml').documentElement;
  if (!(root instanceof SVGSVGElement)) {
    throw new Error('The server sent no picture.');
  }
  for (const element of root.querySelectorAll('script, foreignObject')) {
    element.remove();
  }
  for (const element of [root, ...root.querySelectorAll('*')]) {
    for (const name of element.getAttributeNames()) {
      if (name.toLowerCase().startsWith('on')) {
        element.removeAttribute(name);
      }
    }
  }
  return root;
}

/** `svg` "" keeps what is shown. `onBroken` gets what was thrown, null once there is a picture; `onDrawn` gets each picture. */
export function Drawn(props: {
  svg: string;
  className: string;
  hidden?: boolean;
  title?: string | undefined;
  /** As wide as its box, with its height in proportion. */
  scaled?: boolean;
  onBroken?: (error: unknown) => void;
  onDrawn?: ((picture: SVGSVGElement) => void) | undefined;
}): ReactElement {
  const { svg, scaled, onBroken, onDrawn } = props;
  const canvas = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const host = canvas.current;
    if (host === null || svg === '') {
      return;
    }
    const shadow = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
    try {
      const picture = drawing(svg);
      Object.assign(picture.style, { display: 'block', maxWidth: '100%' }, scaled === true ? { width: '100%', height: 'auto' } : {});
      const shown = document.importNode(picture, true);
      shadow.replaceChildren(shown);
      onDrawn?.(shown);
      onBroken?.(null);
    } catch (error) {
      onBroken?.(error);
    }
  }, [svg]);
  return <div ref={canvas} className={props.className} hidden={props.hidden} title={props.title} />;
}
