/** A kind of thing in the catalogue: what it is, a button for one more, the form while it is open, what went wrong, the list. */

import type { ReactElement, ReactNode } from 'react';

import { Failure } from '../page/standing';

/** `add` is written on the button, which is away while `form` is one for a new thing (`adding`); null is no form. */
export function Entries(props: {
  intro: ReactNode;
  add: string;
  adding: boolean;
  onAdd: () => void;
  form: ReactNode;
  failed: unknown;
  children: ReactNode;
}): ReactElement {
  return (
    <>
      <p className="jp-edt-hint">{props.intro}</p>
      {!props.adding && (
        <div className="jp-edt-toolbar">
          <button type="button" className="jp-edt-button" onClick={props.onAdd}>
            {props.add}
          </button>
        </div>
      )}
      {props.form}
      {props.failed !== null && <Failure error={props.failed} />}
      {props.children}
    </>
  );
}
