/** Who held which share of the slots while the job lived: the whole of it, or a stretch of time. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import type { Stretch } from '../page/stretch';
import { ZoomablePicture } from '../page/zoomable';
import { clock } from '../words';
import { isFinal } from '../views';
import type { IJobView } from '../views';

const STRETCHES = [
  ['all', 'its whole life', null],
  ['600', 'last 10 minutes', 600],
  ['3600', 'last hour', 3600],
  ['86400', 'last day', 86400]
] as const;

/** `now`: seconds since the epoch; stretches end there, or with the job. */
export function Allocation(props: { job: IJobView; now: number; seconds: number | null }): ReactElement {
  const { job } = props;
  const [chosen, setChosen] = useState<string>('all');
  const [stretch, setStretch] = useState<Stretch | null>(null);
  const length = STRETCHES.find(([key]) => key === chosen)?.[2] ?? null;
  // In steps: an end that moves with every second would ask for another picture every second.
  const end = isFinal(job.state) && job.ended !== null ? job.ended : Math.ceil(props.now / 5) * 5;
  const query: Record<string, number> = length === null ? {} : { start: end - length, end };
  return (
    <>
      <div className="jp-edt-toolbar">
        <label>
          Show{' '}
          <select
            value={chosen}
            onChange={event => {
              setChosen(event.target.value);
              setStretch(null);
            }}
          >
            {STRETCHES.map(([key, label]) => (
              <option key={key} value={key}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <span className="jp-edt-hint">Point at a tick to read what changed, and why.</span>
      </div>
      <ZoomablePicture
        path={`jobs/${enc(job.id)}/pictures/allocation`}
        query={query}
        seconds={props.seconds}
        what="Drawing who has which slots"
        stretch={stretch}
        onStretch={setStretch}
        named={clock}
      />
    </>
  );
}
