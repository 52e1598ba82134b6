/** The head of a job's tab: what it is called, how it is, how far, why not further, and how old all this is. */

import { useRef } from 'react';
import type { ReactElement, ReactNode } from 'react';

import { CommandIDs } from '../commands';
import { Facts } from '../page/facts';
import { useEdt } from '../page/surroundings';
import { Progress, State } from '../state';
import { ELASTIC, hasFailed, isFinal } from '../views';
import type { IJobView } from '../views';
import { clock, forecastClock, progressWords, reasonWords, slotsWords, span, timeWords } from '../words';

import { Pace } from './pace';
import { Trouble } from './trouble';

/**
 * `taken`: when this was so; `now`: both in seconds since the epoch. `forecast`: the server's end of the training as things
 * are, shown in place of ours as long as a change is compared with it; null otherwise.
 */
export function Header(props: { job: IJobView; taken: number; now: number; forecast: number | null }): ReactElement {
  const { job, now } = props;
  const pace = useRef(new Pace()).current;
  pace.saw(job, props.taken);
  const ends = endWords(job, pace.ends(job), props.forecast, now);
  const progress = progressWords(job);
  const since = span(now - job.state_since);
  const failed = hasFailed(job.state);
  return (
    <header className="jp-edt-job-header">
      <div className="jp-edt-job-title">
        <h2>{job.name}</h2>
        <State state={job.state} />
        <span className="jp-edt-hint">{isFinal(job.state) ? `${since} ago` : `for ${since}`}</span>
        <span className="jp-edt-hint jp-edt-job-age" role="note">
          as of {clock(props.taken, now)}
        </span>
      </div>
      {failed && job.message !== '' && <Trouble job={job} />}
      {progress !== '' && (
        <div className="jp-edt-progress-row">
          <Progress view={job} />
          <span>{progress}</span>
        </div>
      )}
      {job.progress?.inexact ? (
        <p className="jp-edt-message" role="note">
          <span aria-hidden="true">⚠︎ </span>
          Not exact. {job.progress.inexact}
        </p>
      ) : null}
      <Facts of={facts(job, now, ends)} />
      {job.reason !== null && job.reason.text !== '' && !isFinal(job.state) && (
        <div className="jp-edt-reason">
          <span aria-hidden="true">ℹ︎ </span>
          {reasonWords(job)}
          {job.reason.details ? (
            <details>
              <summary>How this is computed</summary>
              <div>{job.reason.details}</div>
            </details>
          ) : null}
        </div>
      )}
      {!failed && job.message !== '' && (
        <p className="jp-edt-message">
          <span aria-hidden="true">ℹ︎ </span>
          {job.message}
        </p>
      )}
    </header>
  );
}

/** How the end was found, and the end; words in its place until it is known, so that the facts behind it stay in their places. */
function endWords(job: IJobView, paced: number | null, forecast: number | null, now: number): [string, string | null] {
  const ends = forecast ?? paced;
  const name = forecast === null ? 'Ends about, at this pace' : 'Ends about, as things are';
  if (ends !== null) {
    return [name, `${forecastClock(ends, now)}, in ${span(ends - now)}`];
  }
  const trains = job.state === 'RUNNING' && job.progress?.total_updates;
  return [name, trains ? 'is being measured …' : null];
}

/** The project and the experiment of a job, as a link to their runs where there is a page for them. */
function InExperiment({ job }: { job: IJobView }): ReactElement {
  const { commands } = useEdt();
  const { project, experiment } = job;
  const name = [project, experiment].filter(Boolean).join(' / ');
  return commands.hasCommand(CommandIDs.openExperiments) ? (
    <button type="button" className="jp-edt-link" onClick={() => void commands.execute(CommandIDs.openExperiments, { project, experiment })}>
      {name}
    </button>
  ) : (
    <>{name}</>
  );
}

function facts(job: IJobView, now: number, ends: [string, string | null]): [string, ReactNode][] {
  return [
    ['Slots', slotsWords(job) || null],
    ['Time', timeWords(job, now)],
    ends,
    ['Experiment', job.project ? <InExperiment job={job} /> : null],
    ['Submitted', clock(job.created, now)],
    ['Ended', job.ended === null ? null : clock(job.ended, now)],
    ['Priority', isFinal(job.state) ? String(job.priority) : null],
    ['Instance group', isFinal(job.state) ? job.instance_group : null],
    ['Runs', [job.main, ...job.args].join(' ')],
    ['Shards', job.shards === null ? null : String(job.shards)],
    ['Mode', `${job.mode}, seed ${job.seed}`],
    ['Framework', job.framework === ELASTIC ? null : job.framework],
    ['Data set', job.dataset || null],
    ['Model', job.model || null],
    ['Began with weights of', job.warm_start || null],
    ['Validates', job.validates || null],
    ['Owner', job.owner],
    ['Id', job.id],
    ['Results', job.result_dir]
  ];
}
