/** Names and figures side by side, as a description list that wraps. */

import type { ReactElement, ReactNode } from 'react';

/** `[name, value]` pairs; those whose value is null are left out. */
export function Facts(props: { of: readonly (readonly [string, ReactNode])[] }): ReactElement {
  return (
    <dl className="jp-edt-facts">
      {props.of
        .filter(([, value]) => value !== null)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}
