/** `edt:open-hosts`: the page of hosts. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';

import { CATEGORY, CommandIDs } from '../commands';
import { hostsIcon } from '../page/icons';
import { Opener } from '../page/opener';
import { IEdt } from '../tokens';

import { HostsPage } from './hosts_page';

/** The page of hosts. */
export const hosts: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:hosts',
  description: 'The page of the machines that offer slots.',
  autoStart: true,
  requires: [IEdt],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (app: JupyterFrontEnd, edt: IEdt, restorer: ILayoutRestorer | null, palette: ICommandPalette | null): void => {
    const command = CommandIDs.openHosts;
    const caption = 'The machines that offer slots, and how they stand';
    const opener = new Opener(
      app,
      edt,
      {
        name: 'hosts',
        command,
        icon: hostsIcon,
        caption: `${caption}.`,
        key: () => '',
        label: () => 'Hosts',
        content: () => <HostsPage />
      },
      restorer
    );
    app.commands.addCommand(command, { label: 'Hosts', caption, icon: hostsIcon, execute: () => opener.open({}) });
    palette?.addItem({ command, category: CATEGORY });
  }
};
