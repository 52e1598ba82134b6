/** A job in the output of a cell, as it is now: drawn from what the server says, not by the kernel. */

import { LABELS, offered } from '../actions/offered';
import type { Commands } from '../commands';
import { useJobs } from '../hooks';
import type { Jobs } from '../jobs';
import { LogIn } from '../login';
import { PictureImage } from '../picture_image';
import { Button, Progress, State } from '../state';
import { type IJobView, hasFailed } from '../views';
import { progressWords, sentence, slotsWords, timeWords, whyWords } from '../words';
import type { IBundle } from './bundle';
import { standingOf } from './standing';

const BUTTONS = 3;

export interface ICardProps {
  jobs: Jobs;
  commands: Commands;
  bundle: IBundle;
  /** Told whether what the notebook stored says more than the card can. */
  onStored: (wanted: boolean) => void;
}

export function Card({ jobs, commands, bundle, onStored }: ICardProps): JSX.Element {
  useJobs(jobs, bundle.id);
  const { kind, view, says, error } = standingOf(bundle, jobs.get(bundle.id), jobs.reach, jobs.api.transport.baseUrl);
  onStored(kind === 'elsewhere' || (kind !== 'asking' && !view));
  const live = kind === 'live';
  return (
    <div className={`jp-edt-card jp-edt-card-${kind}`} role="group" aria-label={view ? sentence(view) : `Job ${bundle.id}`}>
      <div className="jp-edt-card-head">
        {view ? <State state={view.state} /> : null}
        <b className="jp-edt-name">{view ? view.name : 'Job'}</b>
        <code>{bundle.id}</code>
        {live && view ? <Buttons view={view} mine={isMine(view, jobs)} commands={commands} /> : null}
      </div>
      {view && kind !== 'elsewhere' ? <Facts view={view} jobs={jobs} live={live} /> : null}
      <div className="jp-edt-age" role={live ? undefined : 'status'}>
        {says} <LogIn after={error} />
      </div>
    </div>
  );
}

function Facts({ view, jobs, live }: { view: IJobView; jobs: Jobs; live: boolean }): JSX.Element {
  const why = whyWords(view);
  // The picture has the newest loss too, from an answer of its own: two figures of slightly different moments.
  const { progress } = view;
  const worded = live && progress && !view.validates ? { ...view, progress: { ...progress, loss: null } } : view;
  const facts = [slotsWords(view), progressWords(worded) || 'no update yet', timeWords(view)];
  const bar = <Progress view={view} />;
  return (
    <div className="jp-edt-card-body">
      <div className="jp-edt-card-facts">
        <div>{facts.filter(Boolean).join(' · ')}</div>
        {why ? <div className={hasFailed(view.state) ? 'jp-edt-is-bad' : ''}>{why}</div> : null}
      </div>
      {view.progress ? (
        <div className="jp-edt-spark">
          {live ? (
            <PictureImage
              api={jobs.api}
              path={`jobs/${encodeURIComponent(view.id)}/pictures/spark`}
              version={`${view.state} ${view.progress.update} ${view.slots}`}
              instead={bar}
            />
          ) : (
            bar
          )}
        </div>
      ) : null}
    </div>
  );
}

function Buttons(props: { view: IJobView; mine: boolean; commands: Commands }): JSX.Element {
  const { view, mine, commands } = props;
  const known = offered(view, mine).filter(command => commands.hasCommand(command));
  return (
    <span className="jp-edt-buttons">
      {known.slice(0, BUTTONS).map(command => (
        <Button key={command} onClick={() => void commands.execute(command, { id: view.id })}>
          {LABELS[command]}
        </Button>
      ))}
    </span>
  );
}

function isMine(view: IJobView, jobs: Jobs): boolean {
  return jobs.user === undefined || view.owner === jobs.user;
}
