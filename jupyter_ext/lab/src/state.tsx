/** Small parts that every surface shows of a job: its state, how far it is, a button. */
import type { ReactNode } from 'react';

import { type ILook, LOOKS } from './looks';
import type { IJobView, JobState } from './views';
import { doneShare, percent } from './words';

/** The icon of a state; its word stands beside it, or is its title. */
export function StateIcon({ state, title = '' }: { state: JobState; title?: string }): JSX.Element {
  return <Icon of={LOOKS[state]} title={title} />;
}

function Icon({ of, title = '' }: { of: ILook; title?: string }): JSX.Element {
  return (
    <svg className="jp-edt-icon" viewBox="0 0 16 16" role={title ? 'img' : undefined} aria-hidden={title ? undefined : true}>
      {title ? <title>{title}</title> : null}
      <path fillRule="evenodd" d={of.icon} />
    </svg>
  );
}

/** Icon and word, in the colour of the state. */
export function State({ state }: { state: JobState }): JSX.Element {
  return <Look look={LOOKS[state]} />;
}

/** The same of any look. */
export function Look({ look }: { look: ILook }): JSX.Element {
  return (
    <span className={`jp-edt-state jp-edt-is-${look.tone}`}>
      <Icon of={look} /> {look.word}
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
