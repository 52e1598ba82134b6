/** The tab of one job: its head, what can be done, and six views of it. */

import { useEffect, useState } from 'react';
import type { ReactElement } from 'react';

import { useEdt } from '../page/surroundings';
import { useJob, useNow } from '../page/job_hook';
import { usePolled } from '../page/polled';
import { Failure, Loading } from '../page/standing';
import { Tabs } from '../page/tabs';
import { LogIn } from '../login';
import { clock } from '../words';
import { ApiError } from '../api';
import { isFinal } from '../views';
import type { IWorker } from '../views';

import { Actions } from './actions';
import { Allocation } from './allocation';
import { Checkpoints } from './checkpoints';
import { Controls } from './controls';
import { download } from './download';
import { Header } from './header';
import { Logs } from './logs';
import { Metrics } from './metrics';
import { Story } from './story';
import { Workers } from './workers';

const LIVELY = 3;
const WORKERS = 5;

/** `tab` is the one to begin with; `onTab` is told of every other, so that a reload comes back to it; `onNamed` of its name. */
export function JobPage(props: {
  id: string;
  tab: string;
  onTab: (tab: string) => void;
  onNamed: (name: string) => void;
}): ReactElement {
  const { id } = props;
  const { api, jobs } = useEdt();
  const known = useJob(id);
  const now = useNow(1);
  const [tab, setTab] = useState(props.tab);
  const [failed, setFailed] = useState<unknown>(null);
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
  const choose = (key: string): void => {
    setTab(key);
    props.onTab(key);
  };
  const changed = (view: typeof job): void => jobs.put(view);
  return (
    <div className={known.trouble === '' ? 'jp-edt-job' : 'jp-edt-job jp-mod-stale'}>
      {known.trouble !== '' && (
        <div className="jp-edt-stale" role="status">
          <span aria-hidden="true">⚠ </span>
          Last seen {clock(known.taken, now)}. {known.trouble} <LogIn after={jobs.reach.error} />
        </div>
      )}
      <Header job={job} taken={known.taken} now={now} />
      <Actions job={job} onFailed={setFailed} />
      {failed !== null && <Failure error={failed} />}
      {!ended && <Controls job={job} groups={info.value?.instance_groups ?? []} onChanged={changed} />}
      <Tabs
        label={`Views of ${job.name}`}
        chosen={tab}
        onChoose={choose}
        tabs={[
          { key: 'metrics', label: 'Metrics', content: () => <Metrics job={id} seconds={seconds} /> },
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
          { key: 'story', label: 'Story', content: () => <Story job={id} seconds={seconds} /> },
          { key: 'workers', label: 'Workers', content: () => <Workers job={job} answer={workers} /> }
        ]}
      />
    </div>
  );
}
