/** What the commands do: ask for agreement where something is lost, tell the server, show what it answers. */
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

import { copyText } from '../clipboard';
import { CommandIDs } from '../commands';
import { download as downloadPart } from '../job/download';
import type { IEdt } from '../tokens';
import type { IJobPatch, IJobView } from '../views';
import { deleteWords, pythonOf, stopWords, suspendWords } from './consequences';
import type { Dialogs } from './dialogs';

type Verb = (edt: IEdt, view: IJobView, dialogs: Dialogs) => Promise<void>;
/** The way to what comes next: a command with its arguments. */
export type Execute = (command: string, args: ReadonlyPartialJSONObject) => void;

const checkpointsOf = async (edt: IEdt, view: IJobView) => (await edt.api.checkpoints(view.id)).checkpoints;

export const stop: Verb = async (edt, view, dialogs) => {
  const body = stopWords(view, await checkpointsOf(edt, view));
  if (await dialogs.agreed(`Stop “${view.name}”?`, body, 'Stop', true)) {
    edt.jobs.put(await edt.api.stop(view.id));
  }
};

export const suspend: Verb = async (edt, view, dialogs) => {
  if (await dialogs.agreed(`Suspend “${view.name}”?`, suspendWords(view), 'Suspend')) {
    edt.jobs.put(await edt.api.suspend(view.id));
  }
};

export const resume: Verb = async (edt, view) => {
  edt.jobs.put(await edt.api.resume(view.id));
};

export const remove: Verb = async (edt, view, dialogs) => {
  const body = deleteWords(view, await checkpointsOf(edt, view));
  if (await dialogs.agreed(`Delete “${view.name}”?`, body, 'Delete', true)) {
    await edt.api.delete(view.id);
    edt.jobs.drop(view.id);
  }
};

export const update: Verb = async (edt, view, dialogs) => {
  const groups = (await edt.api.info()).instance_groups;
  const told = await dialogs.filled(
    `Change “${view.name}”`,
    [
      { name: 'priority', label: 'Priority', value: String(view.priority), least: 1 },
      { name: 'max_workers', label: 'Maximum workers (slots)', value: String(view.max_workers), least: 1 },
      {
        name: 'instance_group',
        label: 'Instance group',
        value: view.instance_group,
        choices: groups.includes(view.instance_group) ? groups : [view.instance_group, ...groups]
      }
    ],
    'Change'
  );
  const patch = told && changed(view, told);
  if (patch && Object.keys(patch).length) {
    edt.jobs.put(await edt.api.update(view.id, patch));
  }
};

/** All that the job has written, as one zip. */
export const download: Verb = async (edt, view, dialogs) => {
  const saved = await downloadPart(edt.api, view, 'all');
  if (saved !== '') {
    dialogs.notify(saved);
  }
};

/** Keep the final weights and the code as the next version of a name. */
export const register = async (edt: IEdt, view: IJobView, dialogs: Dialogs, execute: Execute): Promise<void> => {
  const told = await dialogs.filled(
    `Keep the model of “${view.name}”`,
    [
      { name: 'name', label: 'Name', value: view.name.replace(/[^\w.-]+/g, '-') },
      { name: 'description', label: 'Description', value: '' },
      { name: 'alias', label: 'Alias, such as champion (may be empty)', value: '' }
    ],
    'Keep'
  );
  if (told !== null) {
    const { id } = await edt.api.register({ job: view.id, ...told });
    const deploy = (): void => execute(CommandIDs.openCatalogue, { tab: 'deployments', deploy: id });
    dialogs.notify(`Kept as ${id}: it is in the catalogue, under Versions.`, { label: 'Deploy …', run: deploy });
  }
};

/** The lines that reach the job from a cell, into the clipboard. */
export const copyPython: Verb = async (_, view, dialogs) => {
  copyText(pythonOf(view.id));
  dialogs.notify('Copied: paste it into a cell.');
};

function changed(view: IJobView, told: Record<string, string>): IJobPatch {
  const patch: IJobPatch = {};
  const priority = Number(told['priority']);
  const most = Number(told['max_workers']);
  const group = told['instance_group'] ?? view.instance_group;
  if (priority !== view.priority) {
    patch.priority = priority;
  }
  if (most !== view.max_workers) {
    patch.max_workers = most;
  }
  if (group !== view.instance_group) {
    patch.instance_group = group;
  }
  return patch;
}
