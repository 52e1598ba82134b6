/** The status bar's item: how many of my jobs run and wait, and how full the machine is. Opens the panel. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ReactWidget } from '@jupyterlab/ui-components';
import { createElement, useEffect } from 'react';

import { CommandIDs } from './commands';
import { useJobs } from './hooks';
import type { Jobs } from './jobs';
import { IEdt } from './tokens';
import { clock, count } from './words';

/** `EDT 2▶ 1⏸ · 6/8 slots` and what that means. Pure. */
export function statusWords(jobs: Pick<Jobs, 'cluster' | 'reach' | 'user'>): { text: string; says: string } {
  const { cluster, reach, user } = jobs;
  if (!reach.ok) {
    const seen = reach.seen ? `last seen ${clock(reach.seen)}. ` : '';
    return { text: 'EDT ⚠︎', says: `Elastic training: ${seen}${reach.says}` };
  }
  if (!cluster) {
    return { text: 'EDT …', says: 'Elastic training: asking the server.' };
  }
  const mine = cluster.jobs.filter(job => job.owner === user);
  const run = mine.filter(job => job.held > 0).length;
  const wait = mine.length - run;
  const total = cluster.slots.length;
  const used = cluster.slots.filter(slot => slot.job !== null).length;
  const parts = [run ? `${run}▶\uFE0E` : '', wait ? `${wait}⏸\uFE0E` : ''].filter(Boolean).join(' ');
  const jobsSay = `${count(run, 'job')} of mine ${run === 1 ? 'runs' : 'run'}, ${wait} without a slot`;
  return {
    text: `EDT ${parts ? `${parts} · ` : ''}${used}/${total} slots`,
    says: `Elastic training: ${jobsSay}; ${used} of ${count(total, 'slot')} in use. Shows the jobs.`
  };
}

function Item({ jobs, open }: { jobs: Jobs; open: () => void }): JSX.Element {
  useJobs(jobs);
  useEffect(() => {
    const held = jobs.watchCluster();
    return () => held.dispose();
  }, [jobs]);
  const { text, says } = statusWords(jobs);
  return createElement(
    'button',
    { type: 'button', className: 'jp-edt-status', title: says, 'aria-label': says, onClick: open },
    text
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
