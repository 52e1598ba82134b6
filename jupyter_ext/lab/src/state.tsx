/** Small parts that every surface shows of a job: its state, how far it is, a button. */
import type { ReactNode } from 'react';

import { iconOf, LOOKS } from './looks';
import type { IJobView, JobState } from './views';
import { doneShare, percent } from './words';

/** Icon and word, in the colour of the state. */
export function State({ state, short = false }: { state: JobState; short?: boolean }): JSX.Element {
  const look = LOOKS[state];
  return (
    <span className={`jp-edt-state jp-edt-is-${look.tone}`} title={look.word}>
      <span aria-hidden="true">{iconOf(state)}</span> <span className={short ? 'jp-edt-unseen' : ''}>{look.word}</span>
    </span>
  );
}

/** How much is done, as a bar that says its number; nothing while there is no update. */
export function Progress({ view }: { view: IJobView }): JSX.Element | null {
  const share = doneShare(view);
  if (share === null) {
    return null;
  }
  const whole = Math.floor(100 * share);
  return (
    <div
      className={`jp-edt-progress jp-edt-is-${LOOKS[view.state].tone}`}
      role="progressbar"
      aria-valuenow={whole}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-label={`${percent(share)} of ${view.name} is done`}
    >
      <div style={{ width: `${100 * share}%` }} />
    </div>
  );
}

export interface IButtonProps {
  onClick: () => void;
  children: ReactNode;
  title?: string;
  pressed?: boolean;
  disabled?: boolean;
  className?: string;
}

/** A button, as the browser has it: reached by Tab, pressed by Enter and space. */
export function Button(props: IButtonProps): JSX.Element {
  return (
    <button
      type="button"
      className={`jp-edt-button ${props.className ?? ''}`}
      title={props.title}
      aria-pressed={props.pressed}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}
