/** Which job a command is meant for: the one it was given, the one under the pointer, else the one somebody picks. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import type { IJobArgs } from '../commands';
import { LOOKS } from '../looks';
import type { IEdt } from '../tokens';
import type { IJobView } from '../views';
import { offered } from './offered';

/** The attribute of a node that stands for a job, such as a row of the panel. */
const JOB_ATTRIBUTE = 'edtJob';

/** The job's view, or undefined when nobody picks one. `what` is the action, as the heading of the list. */
export async function choose(
  app: JupyterFrontEnd,
  edt: IEdt,
  args: IJobArgs,
  command: string,
  what: string
): Promise<IJobView | undefined> {
  const id = meant(app, args);
  if (id !== '') {
    return edt.api.job(id);
  }
  const jobs = (await edt.api.jobs({ limit: 200 })).jobs.filter(view => offered(view, true).includes(command));
  if (!jobs.length) {
    await showDialog({
      title: what,
      body: 'None of your jobs is in a state for that.',
      buttons: [Dialog.okButton({ label: 'Close' })]
    });
    return undefined;
  }
  return pick(jobs, what);
}

/** One of these jobs, found by what a person types of its name or id, or undefined. */
export async function pick(jobs: readonly IJobView[], title: string): Promise<IJobView | undefined> {
  const items = jobs.map(view => `${view.name} · ${LOOKS[view.state].word} · ${view.id}`);
  const { button, value } = await InputDialog.getItem({ title, label: 'Which job? Type a part of its name or id.', items, editable: true });
  const typed = value?.trim() ?? '';
  if (!button.accept || typed === '') {
    return undefined;
  }
  const named = jobs.filter((view, at) => items[at] === typed || view.name === typed || view.id === typed);
  const found = named.length > 0 ? named : jobs.filter((_, at) => items[at]?.toLowerCase().includes(typed.toLowerCase()));
  if (found.length === 0) {
    await showDialog({ title, body: `No job has “${typed}” in its name or id.`, buttons: [Dialog.okButton({ label: 'Close' })] });
  }
  return found.length > 1 ? pick(found, title) : found[0];
}

/** The id that the command was given, or that of the job whose menu it was chosen in; "" for none. */
export function meant(app: JupyterFrontEnd, args: ReadonlyPartialJSONObject | IJobArgs): string {
  const { id, short } = args as IJobArgs;
  if (typeof id === 'string' && id !== '') {
    return id;
  }
  // From elsewhere, such as the palette, where the pointer was last is no answer.
  return short === true ? pointedAt(app) : '';
}

/** True when the job under the pointer is one for this command. */
export function allowed(app: JupyterFrontEnd, edt: IEdt, command: string): boolean {
  const view = edt.jobs.get(pointedAt(app))?.view;
  return view !== undefined && offered(view, view.owner === edt.jobs.user).includes(command);
}

function pointedAt(app: JupyterFrontEnd): string {
  return app.contextMenuHitTest(node => node.dataset[JOB_ATTRIBUTE] !== undefined)?.dataset[JOB_ATTRIBUTE] ?? '';
}
