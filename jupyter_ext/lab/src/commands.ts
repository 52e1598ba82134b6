import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';

/**
 * Names of the commands, and what they are given. Each is added by the folder of the thing it opens or does.
 *
 * `src/panel/` openPanel; `src/actions/` stop, suspend, resume, update, download, delete, copyPython; `src/job/` openJob,
 * validate; `src/compare/` compare; `src/search/` openSearch; `src/cluster/` openCluster; `src/catalogue/` openCatalogue; `src/experiments/` openExperiments; `src/hosts/` openHosts; `src/train/` train, submitNotebook, clone, mend, tryExample.
 */
export const CommandIDs = {
  openPanel: 'edt:open-panel',
  openJob: 'edt:open-job',
  openSearch: 'edt:open-search',
  openCluster: 'edt:open-cluster',
  openCatalogue: 'edt:open-catalogue',
  openExperiments: 'edt:open-experiments',
  openHosts: 'edt:open-hosts',
  train: 'edt:train',
  submitNotebook: 'edt:submit-notebook',
  stop: 'edt:stop',
  suspend: 'edt:suspend',
  resume: 'edt:resume',
  update: 'edt:update',
  clone: 'edt:clone',
  mend: 'edt:mend',
  tryExample: 'edt:try-example',
  download: 'edt:download',
  delete: 'edt:delete',
  compare: 'edt:compare',
  copyPython: 'edt:copy-python',
  validate: 'edt:validate',
  register: 'edt:register'
} as const;

/** The commands of the application around: JupyterLab's registry, or those of a widget in another notebook. */
export interface Commands {
  hasCommand(id: string): boolean;
  execute(id: string, args?: ReadonlyPartialJSONObject): Promise<unknown>;
}

/** What a command about one job takes; without an id it asks which. `compare` takes `{ ids: string[] }`. */
export interface IJobArgs {
  id?: string;
  /** Chosen in the menu of a job. */
  short?: boolean;
  /** For `mend`: open the line that failed, and no form. */
  look?: boolean;
}

/** The category of all of them in the command palette. */
export const CATEGORY = 'Elastic training';
