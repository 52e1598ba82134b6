/** Which job a command is meant for: the one it was given, the one under the pointer, else the one somebody picks. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';

import type { IJobArgs } from '../commands';
import { LOOKS } from '../looks';
import type { IEdt } from '../tokens';
import type { IJobView } from '../views';
import { offered } from './offered';

/** The attribute of a node that stands for a job, such as a row of the panel. */
export const JOB_ATTRIBUTE = 'edtJob';

/** The job's view, or undefined when nobody picks one. `what` is the action, as the heading of the list. */
export async function choose(
  app: JupyterFrontEnd,
  edt: IEdt,
  args: IJobArgs,
  command: string,
  what: string
): Promise<IJobView | undefined> {
  const pointed = app.contextMenuHitTest(node => node.dataset[JOB_ATTRIBUTE] !== undefined);
  const id = args.id ?? pointed?.dataset[JOB_ATTRIBUTE];
  if (id) {
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
  const items = jobs.map(view => `${view.name} · ${LOOKS[view.state].word} · ${view.id}`);
  const picked = await InputDialog.getItem({ title: what, label: 'Which job?', items });
  return picked.value === null ? undefined : jobs[items.indexOf(picked.value)];
}
