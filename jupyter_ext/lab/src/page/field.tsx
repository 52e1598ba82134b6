/** One question of a form: its label, its input, what it means, and what is wrong with the answer, tied together. */

import { useId } from 'react';
import type { ReactElement, ReactNode } from 'react';

/** What an input needs in order to belong to its label, its hint and its error. */
export interface InputAttributes {
  readonly id: string;
  readonly 'aria-describedby': string;
  readonly 'aria-invalid': boolean;
}

/** A labelled input. `children` gets the attributes its input must carry. */
export function Field(props: {
  label: string;
  hint?: ReactNode;
  error?: string | undefined;
  wide?: boolean;
  children: (input: InputAttributes) => ReactNode;
}): ReactElement {
  const id = useId();
  const wrong = props.error !== undefined && props.error !== '';
  return (
    <div className={`jp-edt-field${wrong ? ' jp-mod-wrong' : ''}${props.wide === true ? ' jp-mod-wide' : ''}`}>
      <label htmlFor={id}>{props.label}</label>
      {props.children({ id, 'aria-describedby': `${id}-hint ${id}-error`, 'aria-invalid': wrong })}
      <div className="jp-edt-hint" id={`${id}-hint`}>
        {props.hint}
      </div>
      <div className="jp-edt-field-error" id={`${id}-error`} role="alert">
        {wrong ? `✕ ${props.error ?? ''}` : ''}
      </div>
    </div>
  );
}
