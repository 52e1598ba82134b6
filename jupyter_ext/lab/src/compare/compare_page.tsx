/** Up to five of my jobs, chosen from a list: their loss curves in one picture, their settings and figures in a table. */

import { useEffect, useMemo, useState } from 'react';
import type { ReactElement } from 'react';

import { type Api, ApiError } from '../api';
import { CommandIDs } from '../commands';
import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Chart } from '../page/chart';
import type { Line } from '../page/curves';
import { Answer, Empty, Failure } from '../page/standing';
import type { Stretch } from '../page/stretch';
import { LOOKS } from '../looks';
import { State } from '../state';
import { share } from '../page/wording';
import { clock, figure, grouped, lossFigure, span } from '../words';
import { isFinal } from '../views';
import type { ICurve, IJobView } from '../views';

import type { Asked } from './plugin';

const MOST = 5;
const NEWEST = 1000;
const LISTED = 100;
const SECONDS = 5;

/** `asked` brings further jobs while the page is open; `onChosen` is told whenever the choice changes. */
export function ComparePage(props: {
  ids: readonly string[];
  asked?: Asked;
  onChosen: (ids: string[]) => void;
}): ReactElement {
  const { api } = useEdt();
  const [chosen, setChosen] = useState<readonly string[]>(props.ids.slice(0, MOST));
  const [wanted, setWanted] = useState('');
  const answer = usePolled('compare', () => look(api, chosen), SECONDS);
  const choose = (ids: readonly string[]): void => {
    setChosen(ids);
    props.onChosen([...ids]);
  };
  useEffect(() => {
    const { asked } = props;
    if (asked === undefined) {
      return;
    }
    const onAsked = (): void => {
      const ids = asked.take();
      if (ids.length > 0) {
        setChosen(old => {
          const next = [...new Set([...old, ...ids])].slice(-MOST);
          props.onChosen(next);
          return next;
        });
      }
    };
    asked.changed.connect(onAsked);
    onAsked();
    return () => {
      asked.changed.disconnect(onAsked);
    };
  }, [props.asked]);
  return (
    <div className="jp-edt-compare">
      <h2>Compare jobs</h2>
      <Answer of={answer} what="Looking for jobs">
        {({ jobs, deleted }) =>
          jobs.length === 0 ? (
            <Empty>
              <p>You have no job yet. Train something, then train it again with other arguments, and compare here.</p>
            </Empty>
          ) : (
            <div className="jp-edt-compare-columns">
              <Choice jobs={jobs} chosen={chosen} wanted={wanted} onWanted={setWanted} onChoose={choose} />
              <div className="jp-edt-compare-result">
                {deleted.filter(id => chosen.includes(id)).map(id => (
                  <Failure
                    key={id}
                    error={new ApiError(404, `There is no job ${id} any more: it was deleted.`)}
                    again={() => choose(chosen.filter(each => each !== id))}
                    says="Leave it out"
                  />
                ))}
                <Comparison jobs={jobs.filter(job => chosen.includes(job.id))} />
              </div>
            </div>
          )
        }
      </Answer>
    </div>
  );
}

/** The newest jobs of mine and those that were chosen; and which of these are there no more. */
async function look(api: Api, chosen: readonly string[]): Promise<{ jobs: readonly IJobView[]; deleted: readonly string[] }> {
  const { jobs } = await api.jobs({ limit: NEWEST });
  const deleted: string[] = [];
  const older: IJobView[] = [];
  for (const id of chosen.filter(id => jobs.every(job => job.id !== id))) {
    try {
      older.push(await api.job(id));
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) {
        throw error;
      }
      deleted.push(id);
    }
  }
  return { jobs: [...jobs, ...older], deleted };
}

function Choice(props: {
  jobs: readonly IJobView[];
  chosen: readonly string[];
  wanted: string;
  onWanted: (text: string) => void;
  onChoose: (ids: readonly string[]) => void;
}): ReactElement {
  const { jobs, chosen, wanted } = props;
  const text = wanted.toLowerCase();
  const found = jobs.filter(job => chosen.includes(job.id) || `${job.name} ${job.id}`.toLowerCase().includes(text));
  const full = chosen.length >= MOST;
  return (
    <fieldset className="jp-edt-compare-choice">
      <legend>Jobs, at most {MOST}</legend>
      <input
        type="search"
        className="jp-edt-search"
        placeholder="Search jobs"
        aria-label="Search jobs"
        value={wanted}
        onChange={event => props.onWanted(event.target.value)}
      />
      {full && <p className="jp-edt-hint">That is {MOST}. Take one away to choose another.</p>}
      <ul>
        {found.slice(0, LISTED).map(job => {
          const on = chosen.includes(job.id);
          return (
            <li key={job.id}>
              <label title={job.id}>
                <input
                  type="checkbox"
                  checked={on}
                  disabled={full && !on}
                  onChange={() => props.onChoose(on ? chosen.filter(id => id !== job.id) : [...chosen, job.id])}
                />{' '}
                <span className="jp-edt-compare-name">{job.name}</span> <State state={job.state} />{' '}
                <span className="jp-edt-hint">{clock(job.created)}</span>
              </label>
            </li>
          );
        })}
      </ul>
      {found.length > LISTED && (
        <p className="jp-edt-hint">
          The newest {LISTED}; a search finds those among the newest {NEWEST}, and “Compare …” on the page of any job brings
          it here.
        </p>
      )}
      {found.length === 0 && <p className="jp-edt-hint">No job is called like that.</p>}
    </fieldset>
  );
}

function Comparison(props: { jobs: readonly IJobView[] }): ReactElement {
  const { commands } = useEdt();
  const { jobs } = props;
  if (jobs.length === 0) {
    return (
      <Empty>
        <p>Choose two to five jobs to see their loss curves in one picture.</p>
      </Empty>
    );
  }
  return (
    <>
      <Curves key={jobs.map(job => job.id).join(',')} jobs={jobs} />
      <div className="jp-edt-scroll">
        <table className="jp-edt-table">
          <thead>
            <tr>
              <th scope="col">
                <span className="jp-edt-visually-hidden">What</span>
              </th>
              {jobs.map(job => (
                <th scope="col" key={job.id}>
                  <button
                    type="button"
                    className="jp-edt-link"
                    onClick={() => void commands.execute(CommandIDs.openJob, { id: job.id })}
                  >
                    {job.name}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {ROWS.map(([name, value]) => {
              const values = jobs.map(value);
              const differs = new Set(values).size > 1;
              return (
                <tr key={name} className={differs ? 'jp-mod-differs' : ''}>
                  <th scope="row">{name}</th>
                  {jobs.map((job, index) => (
                    <td key={job.id}>{values[index]}</td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <p className="jp-edt-hint">Rows in bold differ.</p>
    </>
  );
}

/** The losses of the jobs over samples, which follow those that run. */
function Curves(props: { jobs: readonly IJobView[] }): ReactElement {
  const { api } = useEdt();
  const { jobs } = props;
  const [stretch, setStretch] = useState<Stretch | null>(null);
  const [log, setLog] = useState(false);
  const live = jobs.some(job => !isFinal(job.state));
  const answer = usePolled(
    'curves',
    () => Promise.all(jobs.map(job => api.curve(job.id, 'samples'))),
    live ? SECONDS : null
  );
  return (
    <Answer of={answer} what="Reading the curves">
      {curves => (
        <>
          <label className="jp-edt-toolbar">
            <input type="checkbox" checked={log} onChange={event => setLog(event.target.checked)} /> logarithmic
          </label>
          <Losses names={jobs.map(job => job.name)} curves={curves} log={log} stretch={stretch} onStretch={setStretch} />
        </>
      )}
    </Answer>
  );
}

function Losses(props: {
  names: readonly string[];
  curves: readonly ICurve[];
  log: boolean;
  stretch: Stretch | null;
  onStretch: (stretch: Stretch | null) => void;
}): ReactElement {
  const { curves } = props;
  const names = props.names.join('\n');
  const lines = useMemo(() => linesOf(names.split('\n'), curves), [names, ...curves]);
  const text = `Training loss at the end: ${curves.map((curve, i) => `${props.names[i]} ${ending(curve)}`).join(', ')}.`;
  const losses = lines.flatMap(({ points }) => points.loss);
  if (losses.length < 2 || losses.every(loss => loss === null)) {
    const more =
      losses.length < 2
        ? 'The curves begin with the second update.'
        : 'There is nothing to draw: try a smaller learning rate.';
    return (
      <Empty>
        <p>
          {text} {more}
        </p>
      </Empty>
    );
  }
  return <Chart {...props} axis="samples" lines={lines} text={text} named={x => `${grouped(x)}`} />;
}

function ending({ train }: ICurve): string {
  return train.x.length === 0 ? 'none yet' : lossFigure(train.loss.filter(loss => loss !== null).at(-1) ?? NaN);
}

/** The colours of jobs in the static pictures, edt_sdk/pictures/parts/look.py. */
const COLOURS = ['#5c95ea', '#b58f24', '#ab2b90', '#82995b', '#a3461f', '#5c5eeb', '#e0618e', '#89534f'];
const DASHES = [undefined, [8, 3], [2, 3], [10, 3, 2, 3], [5, 2, 1, 2, 1, 2]];

/** Points of a curve above which a dash pattern would be lost in the noise. */
const DENSE = 300;

/** Each job has its own colour; where an earlier one has the same, the next that no job has. */
function coloursOf(curves: readonly ICurve[]): string[] {
  const own = curves.map(curve => curve.colour);
  const taken = [...own];
  return own.map((colour, i) => {
    if (own.indexOf(colour) === i) {
      return colour;
    }
    const around = [...COLOURS.slice(COLOURS.indexOf(colour)), ...COLOURS];
    const free = around.find(each => !taken.includes(each)) ?? colour;
    taken.push(free);
    return free;
  });
}

/** A line for each job, with a dash pattern by its place in the list, and dots for its validations. */
function linesOf(names: readonly string[], curves: readonly ICurve[]): Line[] {
  const colours = coloursOf(curves);
  return curves.flatMap(({ train, test }, i) => {
    const colour = colours[i]!;
    const dash = train.x.length > DENSE ? undefined : DASHES[i];
    const line: Line = { label: names[i]!, points: train, colour, width: 2, ...(dash === undefined ? {} : { dash }) };
    const tests: Line = { label: `${names[i]}, test`, points: test, colour, width: 0, dots: true };
    return test.x.length === 0 ? [line] : [line, tests];
  });
}

const ROWS: readonly (readonly [string, (job: IJobView) => string])[] = [
  ['State', job => LOOKS[job.state].word],
  ['Loss', job => (job.progress?.not_a_number ? 'not a number' : lossFigure(job.progress?.loss))],
  ['Accuracy', job => share(job.progress?.accuracy)],
  ['Test loss', job => lossFigure(job.progress?.test_loss)],
  ['Test accuracy', job => share(job.progress?.test_accuracy)],
  ['Updates', job => figure(job.progress?.update)],
  ['Arguments', job => job.args.join(' ') || '–'],
  ['Main file', job => job.main],
  ['Mode and seed', job => `${job.mode}, ${job.seed}`],
  ['Shards', job => figure(job.shards)],
  ['Maximum workers', job => String(job.max_workers)],
  ['Priority', job => String(job.priority)],
  [
    'Time',
    job => (job.started === null ? '–' : span((job.ended ?? Date.now() / 1000) - job.started))
  ],
  ['Submitted', job => clock(job.created)]
];
