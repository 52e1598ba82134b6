/** Curves of a training: loss over samples, updates or time, and whether more workers paid off. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { Picture } from '../page/picture';
import type { Stretch } from '../page/stretch';
import { ZoomablePicture } from '../page/zoomable';
import { clock } from '../words';

const AXES = [
  ['samples', 'samples'],
  ['updates', 'updates'],
  ['time', 'time']
] as const;

/** `seconds`: between two drawings, null for a job that has ended. */
export function Metrics(props: { job: string; seconds: number | null }): ReactElement {
  const [axis, setAxis] = useState<string>('samples');
  const [smooth, setSmooth] = useState(0);
  const [stretch, setStretch] = useState<Stretch | null>(null);
  const pictures = `jobs/${enc(props.job)}/pictures`;
  return (
    <>
      <div className="jp-edt-toolbar">
        <fieldset className="jp-edt-choice">
          <legend>Over</legend>
          {AXES.map(([value, label]) => (
            <label key={value}>
              <input
                type="radio"
                name={`axis-${props.job}`}
                value={value}
                checked={axis === value}
                onChange={() => {
                  setAxis(value);
                  setStretch(null);
                }}
              />{' '}
              {label}
            </label>
          ))}
        </fieldset>
        <label className="jp-edt-slider">
          Smoothing{' '}
          <input
            type="range"
            min={0}
            max={0.95}
            step={0.05}
            value={smooth}
            onChange={event => setSmooth(Number(event.target.value))}
          />{' '}
          <output>{smooth === 0 ? 'off' : smooth.toFixed(2)}</output>
        </label>
      </div>
      <ZoomablePicture
        path={`${pictures}/loss`}
        query={{ x: axis, smooth }}
        seconds={props.seconds}
        what="Drawing the loss"
        stretch={stretch}
        onStretch={setStretch}
        named={x => (axis === 'time' ? clock(x) : `${Math.round(x)}`)}
      />
      <h3>Speed by number of workers</h3>
      <Picture path={`${pictures}/efficiency`} seconds={props.seconds} what="Drawing the speeds" />
    </>
  );
}
