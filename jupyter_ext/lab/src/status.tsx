/** The status bar's item: how many of my jobs run and wait, and how full the machine is. Opens the panel. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ReactWidget } from '@jupyterlab/ui-components';
import { createElement, useEffect } from 'react';

import { ApiError } from './api';
import { CommandIDs } from './commands';
import { useJobs } from './hooks';
import type { Jobs } from './jobs';
import { isLoggedOut } from './login';
import { StateIcon } from './state';
import { IEdt } from './tokens';
import { folded, type ICluster, type JobState } from './views';
import { clock, count } from './words';

/** What the item counts: jobs of mine with and without a slot, a search as one; slots in use and in all. Pure. */
export function tally(cluster: ICluster, user: string | undefined): { run: number; wait: number; used: number; total: number } {
  const mine = folded(cluster.jobs.filter(job => job.owner === user));
  const run = mine.filter(job => job.held > 0).length;
  const used = cluster.slots.filter(slot => slot.job !== null).length;
  return { run, wait: mine.length - run, used, total: cluster.slots.length };
}

function Item({ jobs, open }: { jobs: Jobs; open: () => void }): JSX.Element {
  useJobs(jobs);
  useEffect(() => {
    const held = jobs.watchCluster();
    return () => held.dispose();
  }, [jobs]);
  const { reach, cluster } = jobs;
  let says = 'asking the server.';
  let text = <>EDT …</>;
  if (!reach.ok) {
    says = `${reach.seen ? `last seen ${clock(reach.seen)}. ` : ''}${reach.says}`;
    text = <>EDT {shortOf(reach.error)}</>;
  } else if (cluster) {
    const { run, wait, used, total } = tally(cluster, jobs.user);
    const without = `${wait} without a slot`;
    says = `${count(run, 'job')} of mine with slots, ${without}; ${used} of ${count(total, 'slot')} in use. Shows the jobs.`;
    text = (
      <>
        EDT {run ? <Part state="RUNNING" n={run} /> : null}
        {wait ? <Part state="SUSPENDED" n={wait} /> : null}
        {run || wait ? '· ' : ''}
        {used}/{total} slots
      </>
    );
  }
  const label = `Elastic training: ${says}`;
  return (
    <button type="button" className="jp-edt-status" title={label} aria-label={label} onClick={open}>
      {text}
    </button>
  );
}

/** Why it has no figures, in two words. */
function shortOf(error: unknown): string {
  if (isLoggedOut(error)) {
    return 'log in again';
  }
  return error instanceof ApiError && !error.unreachable ? 'not allowed' : 'no answer';
}

function Part({ state, n }: { state: JobState; n: number }): JSX.Element {
  return (
    <>
      {n}
      <StateIcon state={state} />{' '}
    </>
  );
}

export const status: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:status',
  description: 'Jobs and slots in the status bar.',
  autoStart: true,
  requires: [IEdt],
  optional: [IStatusBar],
  activate: (app: JupyterFrontEnd, edt: IEdt, bar: IStatusBar | null) => {
    if (!bar) {
      return;
    }
    const open = (): void => void app.commands.execute(CommandIDs.openPanel);
    const item = ReactWidget.create(createElement(Item, { jobs: edt.jobs, open }));
    bar.registerStatusItem('jupyter-edt:status', { item, align: 'left', rank: 100 });
  }
};
