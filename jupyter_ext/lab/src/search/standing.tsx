/** The state of a search or a trial; apart, because the panel outside JupyterLab shows it without JupyterLab's dialogs. */

import type { ReactElement } from 'react';

import { LOOKS } from '../looks';
import { StateIcon } from '../state';
import type { JobState } from '../views';

/** Icon and word of a search or a trial, in the colour of the state. */
export function Standing(props: { look: readonly [JobState, string] }): ReactElement {
  const [state, word] = props.look;
  return (
    <span className={`jp-edt-state jp-edt-is-${LOOKS[state].tone}`}>
      <StateIcon state={state} /> {word}
    </span>
  );
}
