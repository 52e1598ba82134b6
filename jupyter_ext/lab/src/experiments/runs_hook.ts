/** Projects and tables of runs, asked for again when there is news of jobs: the same news that the panel lives on. */

import { useEffect, useRef } from 'react';

import { enc } from '../api';
import { useJobs } from '../hooks';
import { type Polled, usePolled } from '../page/polled';
import { useShown } from '../page/shown';
import { useEdt } from '../page/surroundings';
import type { IProjectView, IRunTable } from '../catalogue_schemas';
import type { IJobView } from '../views';

import { isLiving } from './rows';

/** Milliseconds between two looks at most; a machine full of jobs has news all the time. */
const AGAIN = 1000;

/** A column that the runs are sorted by, "" for the newest first. */
export interface Order {
  readonly by: string;
  readonly desc: boolean;
}

/** The projects that my jobs are in. */
export function useProjects(): Polled<IProjectView[]> {
  const { api } = useEdt();
  const ask = async () => (await api.request<{ projects: IProjectView[] }>('projects', { no_track_activity: 1 })).projects;
  const answer = usePolled('projects', ask, null);
  useNews([], '', answer.again);
  return answer;
}

/** The runs of a project, or of one of its experiments. The server sorts them, and the old order stays until it has. */
export function useRuns(project: string, experiment: string, { by, desc }: Order): Polled<IRunTable> {
  const { api } = useEdt();
  const path = `projects/${enc(project)}/runs`;
  const query = { experiment, sort: by, desc, no_track_activity: 1 };
  const answer = usePolled(`${path} ${experiment}`, () => api.request<IRunTable>(path, query), null);
  const living = (answer.value?.rows ?? []).filter(isLiving).map(row => String(row['job']));
  useNews(living, `${by} ${desc}`, answer.again);
  return answer;
}

/** Call `again` at once when `asked` is another one, and soon when something about my jobs, or about these trials, is new. */
function useNews(ids: readonly string[], asked: string, again: () => void): void {
  const { jobs } = useEdt();
  const shown = useShown();
  useJobs(jobs);
  useEffect(() => {
    if (!shown) {
      return;
    }
    // Trials of a search are in no list of jobs, so that each is watched by itself, and found on the machine.
    const held = [jobs.watchList('mine'), jobs.watchCluster(), ...ids.map(id => jobs.watchJob(id))];
    return () => held.forEach(one => one.dispose());
  }, [jobs, shown, ids.join()]);
  const trials = ids.map(id => jobs.get(id)?.view).filter(view => view !== undefined);
  const begun = (jobs.cluster?.jobs ?? []).filter(job => job.owner === jobs.user).map(job => job.id);
  const news = JSON.stringify([[...(jobs.list('mine')?.jobs ?? []), ...trials].map(stateOf), begun]);
  const known = useRef({ asked, news });
  const timer = useRef(0);
  useEffect(() => {
    if (known.current.asked !== asked) {
      again();
    } else if (known.current.news !== news && timer.current === 0) {
      timer.current = window.setTimeout(() => {
        timer.current = 0;
        again();
      }, AGAIN);
    }
    known.current = { asked, news };
  }, [asked, news, again]);
  useEffect(() => () => window.clearTimeout(timer.current), []);
}

function stateOf({ id, state, project, experiment, tags, notes, max_workers, progress }: IJobView): unknown[] {
  return [id, state, project, experiment, tags, notes, max_workers, progress?.epoch, progress?.test_loss, progress?.test_accuracy];
}
