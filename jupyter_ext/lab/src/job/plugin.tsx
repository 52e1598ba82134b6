/** `edt:open-job`: the tab of a job; without an id it asks which. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';
import type { ReadonlyJSONObject } from '@lumino/coreutils';

import { CATEGORY, CommandIDs } from '../commands';
import { jobIcon } from '../page/icons';
import { Opener } from '../page/opener';
import { IEdt } from '../tokens';

import { JobPage } from './job_page';

interface Args extends ReadonlyJSONObject {
  id: string;
  /** The view it begins with. */
  tab?: string;
  /** What it was called when it was opened. */
  name?: string;
}

/** Tabs of jobs. */
export const job: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:job',
  description: 'The tab of a job.',
  autoStart: true,
  requires: [IEdt],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    edt: IEdt,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ): void => {
    const nameOf = (args: Args): string => edt.jobs.get(args.id)?.view?.name ?? args.name ?? args.id;
    const opener: Opener<Args> = new Opener<Args>(
      app,
      edt,
      {
        name: 'job',
        command: CommandIDs.openJob,
        icon: jobIcon,
        caption: 'A job: its curves, slots, log, checkpoints and story.',
        key: args => args.id,
        label: nameOf,
        content: (args, page, keep) => {
          const named = (name: string): void => {
            if (page.title.label !== name) {
              page.title.label = name;
              keep({ name });
            }
          };
          return <JobPage id={args.id} tab={args.tab ?? 'metrics'} onTab={tab => keep({ tab })} onNamed={named} />;
        }
      },
      restorer
    );
    app.commands.addCommand(CommandIDs.openJob, {
      label: args => (typeof args['id'] === 'string' ? `Open Job ${nameOf(args as Args)}` : 'Open a Job …'),
      caption: 'Open the tab of a job',
      icon: jobIcon,
      execute: async args => {
        const id = typeof args['id'] === 'string' && args['id'] !== '' ? args['id'] : await ask(edt);
        return id === null ? undefined : opener.open({ ...args, id } as Args);
      }
    });
    palette?.addItem({ command: CommandIDs.openJob, category: CATEGORY });
  }
};

/** The id of one of my jobs that a person picks, null when they pick none. */
async function ask(edt: IEdt): Promise<string | null> {
  const { jobs } = await edt.api.jobs({ limit: 200 });
  const items = jobs.map(each => `${each.name} · ${each.state} · ${each.id}`);
  if (items.length === 0) {
    await InputDialog.getItem({
      title: 'There is no job yet',
      label: 'Train something first: “Train …” in the launcher or the command palette.',
      items: []
    });
    return null;
  }
  const { value, button } = await InputDialog.getItem({ title: 'Open which job?', items });
  return button.accept && value !== null ? (jobs[items.indexOf(value)]?.id ?? null) : null;
}
