/** `edt:open-cluster`: the page of slots and queues. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';

import { CATEGORY, CommandIDs } from '../commands';
import { clusterIcon } from '../page/icons';
import { Opener } from '../page/opener';
import { IEdt } from '../tokens';

import { ClusterPage } from './cluster_page';

/** The page of slots and queues. */
export const cluster: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:cluster',
  description: 'The page of slots and queues.',
  autoStart: true,
  requires: [IEdt],
  optional: [ILayoutRestorer, ICommandPalette, ILauncher],
  activate: (
    app: JupyterFrontEnd,
    edt: IEdt,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null
  ): void => {
    const command = CommandIDs.openCluster;
    const opener = new Opener(
      app,
      edt,
      {
        name: 'cluster',
        command,
        icon: clusterIcon,
        caption: 'Which slot is whose, and who waits.',
        key: () => '',
        // A tab has room for one word, as soon as there are several.
        label: () => 'Slots',
        content: () => <ClusterPage />
      },
      restorer
    );
    app.commands.addCommand(command, {
      label: 'Slots and Queues',
      caption: 'Which slot is whose, and who waits',
      icon: clusterIcon,
      execute: () => opener.open({})
    });
    palette?.addItem({ command, category: CATEGORY });
    launcher?.add({ command, category: CATEGORY, rank: 2 });
  }
};
