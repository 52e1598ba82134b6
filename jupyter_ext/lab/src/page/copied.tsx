/** A text that people need elsewhere, with the button that copies it. */

import type { ReactElement } from 'react';

import { copyText } from '../clipboard';

/** `text` is shown as it is copied. */
export function Copied({ text }: { text: string }): ReactElement {
  return (
    <>
      <code>{text}</code>{' '}
      <button type="button" className="jp-edt-link" onClick={() => copyText(text)}>
        Copy
      </button>
    </>
  );
}
