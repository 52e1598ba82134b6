/** A message when a job of mine ends, with the way to it; a failure stays until somebody has seen it. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { CommandIDs } from './commands';
import { PLUGIN } from './edt';
import { IEdt } from './tokens';
import type { IJobView } from './views';
import { progressWords, timeWords, whyWords } from './words';

/** The message about a job's end. Pure. */
export function endWords(view: IJobView): string {
  const ends = { FINISHED: 'has finished', KILLED: 'was stopped', FAILED: 'has failed', ERROR: 'could not be run' };
  const end = ends[view.state as keyof typeof ends] ?? 'has ended';
  const rest = [whyWords(view), view.state === 'FINISHED' ? progressWords(view) : '', timeWords(view)];
  return `${view.name} ${end}. ${rest.filter(Boolean).join(' · ')}`;
}

export const toasts: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:toasts',
  description: 'Tells when a job ends.',
  autoStart: true,
  requires: [IEdt],
  optional: [ISettingRegistry],
  activate: (app: JupyterFrontEnd, edt: IEdt, registry: ISettingRegistry | null) => {
    let wanted = true;
    void registry?.load(PLUGIN).then(settings => {
      const apply = (): void => {
        wanted = settings.get('tellEnds').composite as boolean;
      };
      settings.changed.connect(apply);
      apply();
    });
    edt.jobs.ended.connect((_, view) => {
      if (!wanted) {
        return;
      }
      const bad = view.state === 'FAILED' || view.state === 'ERROR';
      const command = app.commands.hasCommand(CommandIDs.openJob) ? CommandIDs.openJob : CommandIDs.openPanel;
      Notification.emit(endWords(view), bad ? 'error' : view.state === 'FINISHED' ? 'success' : 'info', {
        autoClose: bad ? false : 8000,
        actions: [{ label: 'Open', callback: () => void app.commands.execute(command, { id: view.id }) }]
      });
    });
  }
};
