/** The tab of one job: its head, what can be done, and the views of it. */

import { useEffect, useState } from 'react';
import type { ReactElement } from 'react';

import type { ISignal } from '@lumino/signaling';

import { type Outputs, outputsOf } from '../actions/offered';
import { useEdt } from '../page/surroundings';
import { useJob, useNow } from '../page/job_hook';
import { usePolled } from '../page/polled';
import { useShown } from '../page/shown';
import { Failure, Loading } from '../page/standing';
import { type Tab, Tabs } from '../page/tabs';
import { LogIn } from '../login';
import { clock } from '../words';
import { ApiError } from '../api';
import { hasFailed, isFinal } from '../views';
import type { IWorker } from '../views';

import { Actions } from './actions';
import { Allocation } from './allocation';
import { Checkpoints } from './checkpoints';
import { Controls } from './controls';
import { download } from './download';
import { Header } from './header';
import { Logs } from './logs';
import { Metrics } from './metrics';
import { Notes } from './notes';
import { Story } from './story';
import { OwnResult, Validations } from './validations';
import { Workers } from './workers';

const LIVELY = 3;
const WORKERS = 5;

/** What a page comes back to after a reload, and can be asked to show: a view, "" for the first, and the form in it. */
export interface Shows {
  readonly tab: string;
  /** The form for a validation is open. */
  readonly asking: boolean;
}

/** `begin` is what to begin with, `asked` brings another; `onShows` is told of every other, and `onNamed` of its name. */
interface IJobPageProps {
  id: string;
  begin: Shows;
  asked: ISignal<object, { readonly id: string } & Shows>;
  onShows: (shows: Shows) => void;
  onNamed: (name: string) => void;
}

/** The page of a job of mine. Of another user's job the lists have all that the server shows. */
export function JobPage(props: IJobPageProps): ReactElement {
  const { jobs } = useEdt();
  const job = useJob(props.id)?.view;
  if (job !== undefined && jobs.isForeign(job.id)) {
    const says = `Job ${job.id} belongs to ${job.owner}, and you are ${jobs.user}.`;
    return <Failure error={new ApiError(403, says, '', 'Only its owner may see or change it.')} />;
  }
  return <OwnJobPage {...props} />;
}

function OwnJobPage(props: IJobPageProps): ReactElement {
  const { id, asked } = props;
  const { api, jobs } = useEdt();
  const known = useJob(id);
  const now = useNow(1);
  const [shows, setShows] = useState<Shows>(props.begin);
  const [failed, setFailed] = useState<unknown>(null);
  const [forecast, setForecast] = useState<number | null>(null);
  const job = known?.view;
  const ended = job !== undefined && isFinal(job.state);
  const seconds = ended || known?.gone === true ? null : LIVELY;
  const info = usePolled('info', () => api.info(), null);
  // Asked anew when the job ends: then nobody works any more.
  const workers = usePolled<readonly IWorker[]>(
    `workers ${id} ${ended}`,
    async () => (await api.workers(id)).workers,
    ended || known?.gone === true ? null : WORKERS
  );

  const outputs = usePolled<Outputs | null>(
    `outputs ${id} ${ended}`,
    async () => (ended ? outputsOf((await api.checkpoints(id)).checkpoints) : null),
    null
  ).value;

  const show = (next: Shows): void => {
    setShows(next);
    props.onShows(next);
  };
  useEffect(() => {
    const onAsked = (_: object, to: { readonly id: string } & Shows): void => {
      if (to.id === id) {
        show({ tab: to.tab, asking: to.asking });
      }
    };
    asked.connect(onAsked);
    return () => {
      asked.disconnect(onAsked);
    };
  }, [asked, id]);

  const shown = useShown();
  useEffect(() => {
    if (shown) {
      jobs.looked.emit(id);
    }
  }, [jobs, shown, id, ended]);

  const name = job?.name;
  useEffect(() => {
    if (name !== undefined) {
      props.onNamed(name);
    }
  }, [name]);

  if (known?.gone === true) {
    return (
      <Failure
        error={new ApiError(404, `There is no job ${id} any more: it was deleted.`, '', 'Close this tab, or open another job from the panel.')}
      />
    );
  }
  if (job === undefined || known === undefined) {
    return known === undefined || known.trouble === '' ? (
      <Loading what={`Looking for job ${id}`} />
    ) : (
      <Failure error={jobs.reach.error ?? new Error(known.trouble)} again={() => void jobs.refresh(id)} />
    );
  }
  const changed = (view: typeof job): void => jobs.put(view);
  const measured = !ended || job.progress !== null;
  const validates = Boolean(job.validates);
  const validation: Tab = {
    key: 'validation',
    label: validates ? 'Result' : 'Validation',
    content: () =>
      validates ? (
        <OwnResult job={job} />
      ) : (
        <Validations job={job} asking={shows.asking} onAsking={asking => show({ ...shows, asking })} />
      )
  };
  return (
    <div className={known.trouble === '' ? 'jp-edt-job' : 'jp-edt-job jp-mod-stale'}>
      {known.trouble !== '' && (
        <div className="jp-edt-stale" role="status">
          <span aria-hidden="true">⚠ </span>
          Last seen {clock(known.taken, now)}. {known.trouble} <LogIn after={jobs.reach.error} />
        </div>
      )}
      <Header job={job} taken={known.taken} now={now} forecast={ended ? null : forecast} />
      <Actions job={job} outputs={outputs} onFailed={setFailed} />
      {failed !== null && <Failure error={failed} />}
      {!ended && <Controls job={job} groups={info.value?.instance_groups ?? []} onChanged={changed} onForecast={setForecast} />}
      <Notes job={job} onChanged={changed} />
      <Tabs
        label={`Views of ${job.name}`}
        chosen={shows.tab || (hasFailed(job.state) ? 'logs' : validates ? 'validation' : 'metrics')}
        onChoose={tab => show({ ...shows, tab })}
        tabs={[
          ...(validates ? [validation] : []),
          { key: 'metrics', label: 'Metrics', content: () => <Metrics job={id} seconds={seconds} measured={measured} /> },
          {
            key: 'allocation',
            label: 'Allocation',
            content: () => <Allocation job={job} now={now} seconds={seconds} />
          },
          {
            key: 'logs',
            label: 'Logs',
            content: () => (
              <Logs
                job={id}
                ended={ended}
                workers={workers.value ?? []}
                onDownload={() => void download(api, job, 'log').catch(setFailed)}
              />
            )
          },
          {
            key: 'checkpoints',
            label: 'Checkpoints',
            content: () => <Checkpoints job={job} seconds={seconds} onChanged={changed} />
          },
          ...(validates ? [] : [validation]),
          { key: 'story', label: 'Story', content: () => <Story job={id} seconds={seconds} /> },
          { key: 'workers', label: 'Workers', content: () => <Workers job={job} answer={workers} /> }
        ]}
      />
    </div>
  );
}
