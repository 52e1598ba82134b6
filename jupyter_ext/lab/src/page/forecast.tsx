/** The sentence on when something would start, and on whose slots. */

import type { ReactElement } from 'react';

export function Forecast(props: { text: string }): ReactElement {
  return (
    <p className="jp-edt-forecast" role="status">
      <span aria-hidden="true">◷ </span>
      {props.text}
    </p>
  );
}
