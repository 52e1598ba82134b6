/** The commands that act on one job: in the palette, in the panel's context menu, behind the buttons of cards. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';

import { sentenceOf } from '../api';
import { CATEGORY, CommandIDs, type IJobArgs } from '../commands';
import { IEdt } from '../tokens';
import type { IJobView } from '../views';
import { allowed, choose } from './choose';
import type { Dialogs } from './dialogs';
import { labDialogs } from './lab_dialogs';
import { LABELS } from './offered';
import * as verbs from './verbs';

type Run = (edt: IEdt, view: IJobView, dialogs: Dialogs, execute: verbs.Execute) => Promise<void>;

const VERBS: Record<string, { label: string; run: Run }> = {
  [CommandIDs.suspend]: { label: 'Suspend Job …', run: verbs.suspend },
  [CommandIDs.resume]: { label: 'Resume Job', run: verbs.resume },
  [CommandIDs.stop]: { label: 'Stop Job …', run: verbs.stop },
  [CommandIDs.update]: { label: 'Change Priority, Workers or Group of a Job …', run: verbs.update },
  [CommandIDs.download]: { label: 'Download Result of a Job', run: verbs.download },
  [CommandIDs.register]: { label: 'Keep the Model of a Job as a Version …', run: verbs.register },
  [CommandIDs.copyPython]: { label: 'Copy Python to Reach a Job', run: verbs.copyPython },
  [CommandIDs.delete]: { label: 'Delete Job …', run: verbs.remove }
};

const MENU = [
  CommandIDs.openJob,
  CommandIDs.mend,
  CommandIDs.suspend,
  CommandIDs.resume,
  CommandIDs.stop,
  CommandIDs.update,
  CommandIDs.clone,
  CommandIDs.download,
  CommandIDs.validate,
  CommandIDs.register,
  CommandIDs.copyPython,
  CommandIDs.delete
];

export const actions: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:actions',
  description: 'Commands that act on one job.',
  autoStart: true,
  requires: [IEdt],
  optional: [ICommandPalette],
  activate: (app: JupyterFrontEnd, edt: IEdt, palette: ICommandPalette | null) => {
    for (const [command, { label, run }] of Object.entries(VERBS)) {
      app.commands.addCommand(command, {
        label: args => (args['short'] ? (LABELS[command] ?? label) : label),
        caption: label,
        isVisible: args => (args['short'] ? allowed(app, edt, command) : true),
        describedBy: {
          args: { type: 'object', properties: { id: { type: 'string', description: 'Id of the job; asked for without.' } } }
        },
        execute: async args => {
          try {
            const view = await choose(app, edt, args as IJobArgs, command, label.replace(/ …$/, ''));
            if (view) {
              await run(edt, view, labDialogs, (next, given) => void app.commands.execute(next, given));
            }
          } catch (error) {
            Notification.error(sentenceOf(error), { autoClose: 10_000 });
          }
        }
      });
      palette?.addItem({ command, category: CATEGORY });
    }
    MENU.forEach((command, rank) => {
      app.contextMenu.addItem({ command, selector: '.jp-edt-row', rank, args: { short: true } });
    });
  }
};
