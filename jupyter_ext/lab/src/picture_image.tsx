/**
 * A picture the server draws as a small image, with the sentence it says as its text; kept while a newer one is on its way.
 * Pages show theirs as wide as there is room, in `page/picture.tsx`.
 */
import { useEffect, useState } from 'react';

import { type Api, ApiError, type IPicture, type Query, sentenceOf } from './api';
import { Drawn } from './drawn';

export interface IPictureProps {
  api: Api;
  /** Such as `jobs/<id>/pictures/loss` or `pictures/timeline`. */
  path: string;
  query?: Query;
  /** Asked for again whenever this changes; the server sends only what is new. */
  version?: string | number;
  className?: string;
  /** What is shown where there is no picture, in place of the sentence that says why. */
  instead?: JSX.Element | null;
  /** As a part of the page, so that its shapes have their titles when pointed at. */
  inline?: boolean;
}

/** The picture as an image, a sentence where there is none. */
export function PictureImage(props: IPictureProps): JSX.Element | null {
  const { api, path, query = {}, version = '', className = '', instead, inline = false } = props;
  const [shown, setShown] = useState<IPicture | null>(null);
  const [trouble, setTrouble] = useState('');
  const dark = useDark();
  const key = JSON.stringify([path, query, version, dark]);
  useEffect(() => {
    let wanted = true;
    api.picture(path, { zone: ZONE, theme: dark ? 'dark' : 'light', ...query }).then(
      picture => {
        if (wanted) {
          setShown(picture);
          setTrouble('');
        }
      },
      error => {
        if (wanted) {
          setTrouble(sentenceOf(error));
          if (!(error instanceof ApiError && error.unreachable)) {
            setShown(null);
          }
        }
      }
    );
    return () => {
      wanted = false;
    };
  }, [key]);
  if (shown) {
    const faded = trouble ? ' jp-edt-old' : '';
    const title = trouble ? `${shown.says} (not renewed: ${trouble})` : shown.says;
    if (inline) {
      return <Drawn svg={shown.svg} scaled className={`jp-edt-picture ${className}${faded}`} title={trouble ? title : undefined} />;
    }
    return <img className={`jp-edt-picture ${className}${faded}`} src={dataUri(shown.svg)} alt={shown.says} title={title} />;
  }
  if (instead !== undefined) {
    return instead;
  }
  return <p className={`jp-edt-no-picture ${className}`}>{trouble || 'The picture is being drawn …'}</p>;
}

/** Whose clock the times of pictures are in. */
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Bytes of UTF-8 in base64: names in a picture are people's own. */
export function dataUri(svg: string): string {
  const bytes = new TextEncoder().encode(svg);
  let text = '';
  for (let i = 0; i < bytes.length; i += 8192) {
    text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  }
  return `data:image/svg+xml;base64,${btoa(text)}`;
}

/** True while the theme of JupyterLab, VS Code or Colab is dark; follows a change of the theme. */
export function useDark(): boolean {
  const [dark, setDark] = useState(isDark);
  useEffect(() => {
    const watcher = new MutationObserver(() => setDark(isDark()));
    watcher.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-light', 'class'] });
    watcher.observe(document.documentElement, { attributes: true, attributeFilter: ['theme'] });
    return () => watcher.disconnect();
  }, []);
  return dark;
}

function isDark(): boolean {
  const { body, documentElement } = document;
  return (
    body.dataset['jpThemeLight'] === 'false' ||
    body.classList.contains('vscode-dark') ||
    documentElement.getAttribute('theme') === 'dark'
  );
}
