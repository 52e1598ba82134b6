/** `edt:open-job`: the tab of a job; without an id it asks which. `edt:validate`: the same with the form for a validation. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';

import { allowed, choose, meant, pick } from '../actions/choose';
import { LABELS } from '../actions/offered';
import { CATEGORY, CommandIDs, type IJobArgs } from '../commands';
import { jobIcon } from '../page/icons';
import { Opener } from '../page/opener';
import type { Page } from '../page/page';
import { IEdt } from '../tokens';

import { JobPage, type Shows } from './job_page';

interface Args extends ReadonlyJSONObject {
  id: string;
  /** The view it begins with. */
  tab?: string;
  /** The form for a validation is open. */
  asking?: boolean;
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
    const asked = new Signal<object, { id: string } & Shows>({});
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
          const begin = { tab: args.tab ?? '', asking: args.asking ?? false };
          return (
            <JobPage id={args.id} begin={begin} asked={asked} onShows={shows => keep({ ...shows })} onNamed={named} />
          );
        }
      },
      restorer
    );
    const open = (args: Args): Page => {
      const known = opener.find(args);
      const page = opener.open(args);
      if (known !== undefined && args.tab !== undefined) {
        asked.emit({ id: args.id, tab: args.tab, asking: args.asking ?? false });
      }
      return page;
    };
    app.commands.addCommand(CommandIDs.openJob, {
      label: args =>
        args['short'] === true
          ? (LABELS[CommandIDs.openJob] ?? '')
          : typeof args['id'] === 'string'
            ? `Open Job ${nameOf(args as Args)}`
            : 'Open a Job …',
      caption: 'Open the tab of a job',
      icon: jobIcon,
      execute: async args => {
        const id = meant(app, args) || (await ask(edt));
        return id === null ? undefined : open({ ...args, id } as Args);
      }
    });
    app.commands.addCommand(CommandIDs.validate, {
      label: args => (args['short'] === true ? (LABELS[CommandIDs.validate] ?? '') : 'Validate a Trained Model …'),
      caption: 'Run what a job trained once over the test data, with a confusion matrix',
      isVisible: args => args['short'] !== true || allowed(app, edt, CommandIDs.validate),
      execute: async args => {
        const view = await choose(app, edt, args as IJobArgs, CommandIDs.validate, 'Validate a trained model');
        return view && open({ id: view.id, name: view.name, tab: 'validation', asking: true });
      }
    });
    for (const command of [CommandIDs.openJob, CommandIDs.validate]) {
      palette?.addItem({ command, category: CATEGORY });
    }
  }
};

/** The id of one of my jobs that a person picks, null when they pick none. */
async function ask(edt: IEdt): Promise<string | null> {
  const { jobs } = await edt.api.jobs({ limit: 200 });
  if (jobs.length === 0) {
    await InputDialog.getItem({
      title: 'There is no job yet',
      label: 'Train something first: “Train …” in the launcher or the command palette.',
      items: []
    });
    return null;
  }
  return (await pick(jobs, 'Open a job'))?.id ?? null;
}
