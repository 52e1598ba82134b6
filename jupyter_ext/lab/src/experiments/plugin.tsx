/** `edt:open-experiments`: the table of runs; `project` and `experiment` say which. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { Signal } from '@lumino/signaling';

import { CATEGORY, CommandIDs } from '../commands';
import { experimentsIcon } from '../page/icons';
import { Opener } from '../page/opener';
import { IEdt } from '../tokens';

import { ExperimentsPage, type Shown } from './experiments_page';

/** The page of experiments. */
export const experiments: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:experiments',
  description: 'Compares the runs of an experiment in a table.',
  autoStart: true,
  requires: [IEdt],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (app: JupyterFrontEnd, edt: IEdt, restorer: ILayoutRestorer | null, palette: ICommandPalette | null): void => {
    const command = CommandIDs.openExperiments;
    const asked = new Signal<object, Shown>({});
    const opener = new Opener<Shown>(
      app,
      edt,
      {
        name: 'experiments',
        command,
        icon: experimentsIcon,
        caption: 'The runs of an experiment in a table.',
        key: () => '',
        label: () => 'Experiments',
        content: (args, _, keep) => <ExperimentsPage shown={args} asked={asked} onShown={keep} />
      },
      restorer
    );
    app.commands.addCommand(command, {
      label: 'Experiments',
      caption: 'Arguments and metrics of the runs of an experiment in a table',
      icon: experimentsIcon,
      execute: args => {
        const text = (name: string): string => (typeof args[name] === 'string' ? args[name] : '');
        const shown = { project: text('project'), experiment: text('experiment') };
        const open = opener.find(shown);
        const page = opener.open(shown);
        if (open !== undefined && shown.project !== '') {
          asked.emit(shown);
        }
        return page;
      }
    });
    palette?.addItem({ command, category: CATEGORY });
  }
};
