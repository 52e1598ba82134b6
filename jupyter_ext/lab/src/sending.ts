/**
 * An upload that can be watched and stopped: multipart/form-data, read from the disk while it is sent. `fetch` does not tell
 * how far a request is, so this is the one that is made otherwise; its errors are those of `Api`.
 */

import { ApiError, refusal } from './api';
import type { Api } from './api';

/** How far an upload is: bytes sent, and bytes to send. */
export type Progress = (sent: number, total: number) => void;

/** POST `form` to `path`; its answer. ApiError with its sentence, and an AbortError when `signal` says so. */
export function send<T>(api: Api, path: string, form: FormData, progress: Progress, signal: AbortSignal): Promise<T> {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open('POST', api.url(path));
    for (const [name, value] of Object.entries(credentials(api))) {
      request.setRequestHeader(name, value);
    }
    request.upload.onprogress = event => progress(event.loaded, event.total);
    request.onload = () => {
      if (request.status >= 200 && request.status < 300) {
        done(JSON.parse(request.responseText) as T);
      } else {
        const { status, statusText } = request;
        refusal(new Response(request.responseText, { status, statusText })).then(failed, failed);
      }
    };
    request.onerror = () =>
      failed(
        new ApiError(
          0,
          'The upload was cut off.',
          'unreachable',
          'Nothing of it is kept. See whether the Jupyter server still runs, and send it again.'
        )
      );
    request.onabort = () => failed(new DOMException('Cancelled.', 'AbortError'));
    signal.addEventListener('abort', () => request.abort());
    request.send(form);
  });
}

/** What makes the server take a request for one of this page: its token, or the cookie of the session with its check. */
function credentials(api: Api): Record<string, string> {
  const { token } = api.transport;
  const check = /(?:^|; ?)_xsrf=([^;]*)/.exec(document.cookie)?.[1];
  return {
    ...(token === '' ? {} : { Authorization: `token ${token}` }),
    ...(check === undefined ? {} : { 'X-XSRFToken': check })
  };
}
