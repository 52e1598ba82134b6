/** The way back in when the server does not know this page any more: a login in another tab, so that nothing here is lost. */
import { PageConfig, URLExt } from '@jupyterlab/coreutils';

import { ApiError, LOGGED_OUT } from './api';

/** Where one logs in; the login of a Hub or of a token, whichever the server has, and then this page again. */
export function loginUrl(): string {
  const here = encodeURIComponent(window.location.pathname);
  return `${URLExt.join(PageConfig.getBaseUrl(), 'login')}?next=${here}`;
}

/** True when logging in again helps. */
export function isLoggedOut(error: unknown): boolean {
  return error instanceof ApiError && error.code === LOGGED_OUT;
}

/** A link where logging in helps, nothing elsewhere. */
export function LogIn({ after }: { after: unknown }): JSX.Element | null {
  return isLoggedOut(after) ? (
    <a className="jp-edt-link jp-edt-login" href={loginUrl()} target="_blank" rel="noreferrer">
      Log in again
    </a>
  ) : null;
}
