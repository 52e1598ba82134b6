/** How far an upload is, and how it is stopped. */

import type { ReactElement } from 'react';

import { bytes } from '../words';

import type { Underway } from './uploads';

export function UploadProgress(props: { of: Underway; onStop: () => void }): ReactElement {
  const { sent, total } = props.of;
  const whole = total > 0 && sent >= total;
  return (
    <div className="jp-edt-upload jp-mod-wide">
      <progress aria-label="Upload" max={total || 1} value={whole ? undefined : sent} />
      <span role="status">
        {whole
          ? 'All of it is sent; the server puts it in its place …'
          : `${bytes(sent)} of ${bytes(total)} sent. It goes on while you look at something else.`}
      </span>
      <button type="button" className="jp-edt-button" onClick={props.onStop}>
        Cancel the upload
      </button>
    </div>
  );
}
