/** Curves of a training: loss over samples, updates or time, and whether more workers paid off. */

import { useMemo, useRef, useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { Chart, useInk } from '../page/chart';
import { smoothed } from '../page/curves';
import type { Line } from '../page/curves';
import { Picture } from '../page/picture';
import { usePolled } from '../page/polled';
import { Empty, Failure, Loading, Stale } from '../page/standing';
import type { Stretch } from '../page/stretch';
import { useEdt } from '../page/surroundings';
import type { ICurve } from '../views';
import { clock, grouped } from '../words';

const AXES = [
  ['samples', 'samples'],
  ['updates', 'updates'],
  ['time', 'time']
] as const;

/** `seconds`: between two answers of the server, null for a job that has ended; `measured`: there are figures, or there will be. */
export function Metrics(props: { job: string; seconds: number | null; measured: boolean }): ReactElement {
  const [axis, setAxis] = useState<string>('samples');
  const [smooth, setSmooth] = useState(0);
  const [log, setLog] = useState(false);
  const [stretch, setStretch] = useState<Stretch | null>(null);
  if (!props.measured) {
    return (
      <Empty>
        <p>This job ended before its first update, so there is nothing to draw. The logs show why it ended.</p>
      </Empty>
    );
  }
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
        <label>
          <input type="checkbox" checked={log} onChange={event => setLog(event.target.checked)} /> logarithmic
        </label>
      </div>
      <Loss {...props} axis={axis} smooth={smooth} log={log} stretch={stretch} onStretch={setStretch} />
      <h3>Speed by number of workers</h3>
      <Picture path={`jobs/${enc(props.job)}/pictures/efficiency`} seconds={props.seconds} what="Drawing the speeds" />
    </>
  );
}

/** The loss of a training, which follows a running one. */
function Loss(props: {
  job: string;
  seconds: number | null;
  axis: string;
  smooth: number;
  log: boolean;
  stretch: Stretch | null;
  onStretch: (stretch: Stretch | null) => void;
}): ReactElement {
  const { job, axis, smooth } = props;
  const { api } = useEdt();
  const ink = useInk();
  const answer = usePolled(`curve ${job} ${axis}`, () => api.curve(job, axis), props.seconds);
  // The curve over another axis stays until the chosen one is there.
  const kept = useRef<ICurve | null>(null);
  kept.current = answer.value ?? kept.current;
  const curve = kept.current;
  const lines = useMemo(() => (curve === null ? [] : linesOf(curve, smooth, ink)), [curve, smooth, ink]);
  if (curve === null) {
    return answer.error === null ? <Loading what="Reading the loss" /> : <Failure error={answer.error} again={answer.again} />;
  }
  return (
    <div data-curve={job}>
      <Stale error={answer.error} taken={answer.taken} again={answer.again} />
      {curve.train.x.length + curve.test.x.length < 2 ? (
        <Empty>
          <p>{curve.text}</p>
        </Empty>
      ) : (
        <Chart
          {...props}
          axis={curve.axis}
          lines={lines}
          workers={curve.workers}
          marks={curve.marks}
          text={curve.text}
          named={x => (curve.axis === 'time' ? clock(x) : grouped(x))}
        />
      )}
    </div>
  );
}

function linesOf(curve: ICurve, smooth: number, ink: ReturnType<typeof useInk>): Line[] {
  const { train, test } = curve;
  const line = smoothed(train, smooth);
  const lines: Line[] =
    line.x.length === 0
      ? [{ label: 'training loss', points: train, colour: ink.train, width: 1.8 }]
      : [
          { label: 'training loss, smoothed', points: line, colour: ink.train, width: 2.4 },
          { label: 'as it was', points: train, colour: ink.train, width: 1, faint: true }
        ];
  return test.x.length === 0 ? lines : [...lines, { label: 'test loss', points: test, colour: ink.test, width: 1.8, dots: true }];
}
