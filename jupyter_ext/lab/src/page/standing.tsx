/** What a page says when it has nothing to show yet, nothing at all, or cannot get it: always a sentence, never a blank. */

import type { ReactElement, ReactNode } from 'react';

import { LogIn } from '../login';
import { explain } from './explain';
import type { Polled } from './polled';
import { clock } from '../words';

/** Something is on its way. */
export function Loading(props: { what: string }): ReactElement {
  return (
    <p className="jp-edt-standing" role="status">
      <span className="jp-edt-spinner" aria-hidden="true" /> {props.what} …
    </p>
  );
}

/** There is nothing, and this is how there would be something. */
export function Empty(props: { children: ReactNode }): ReactElement {
  return <div className="jp-edt-standing jp-edt-empty">{props.children}</div>;
}

/** It cannot be had: what happened, what to do, and a button to try again, or to do what it `says`. */
export function Failure(props: { error: unknown; again?: () => void; says?: string }): ReactElement {
  const { message, hint } = explain(props.error);
  return (
    <div className="jp-edt-standing jp-edt-failure" role="alert">
      <p>
        <span aria-hidden="true">✕ </span>
        {message}
      </p>
      {hint !== '' && <p className="jp-edt-hint">{hint}</p>}
      <LogIn after={props.error} />{' '}
      {props.again !== undefined && (
        <button type="button" className="jp-edt-button" onClick={props.again}>
          {props.says ?? 'Try again'}
        </button>
      )}
    </div>
  );
}

/** An answer there is, but no newer one: why, and how old it is. */
export function Stale(props: { error: unknown; taken: number; again: () => void }): ReactElement | null {
  if (props.error === null) {
    return null;
  }
  const { message, hint } = explain(props.error);
  return (
    <div className="jp-edt-stale" role="status">
      <span aria-hidden="true">⚠ </span>
      Last seen {clock(props.taken)}. {message} {hint} <LogIn after={props.error} />{' '}
      <button type="button" className="jp-edt-link" onClick={props.again}>
        Try again
      </button>
    </div>
  );
}

/** The answer of a question once there is one; until then why not. */
export function Answer<T>(props: {
  of: Polled<T>;
  what: string;
  children: (value: T) => ReactNode;
}): ReactElement {
  const { of } = props;
  if (of.value === null) {
    return of.error === null ? <Loading what={props.what} /> : <Failure error={of.error} again={of.again} />;
  }
  return (
    <>
      <Stale error={of.error} taken={of.taken} again={of.again} />
      {props.children(of.value)}
    </>
  );
}
