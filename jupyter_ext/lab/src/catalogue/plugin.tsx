/** `edt:open-catalogue`: `tab` names the page to show, and with `deploy` the form of a deployment is open for that version. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { ILauncher } from '@jupyterlab/launcher';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';

import { sentenceOf } from '../api';
import { CATEGORY, CommandIDs } from '../commands';
import { catalogueIcon } from '../page/icons';
import { Opener } from '../page/opener';
import { IEdt } from '../tokens';

import { CataloguePage } from './catalogue_page';
import type { Wanted } from './catalogue_page';
import { Uploads } from './uploads';

interface Args extends ReadonlyJSONObject {
  tab: string;
  deploy: string;
}

/** The page of the catalogue. */
export const catalogue: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:catalogue',
  description: 'Data sets, models, versions, deployments and instance groups.',
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
    const command = CommandIDs.openCatalogue;
    const asked = new Signal<object, Wanted>({});
    const uploads = new Uploads(edt.api);
    uploads.endedUnseen.connect((_, { name, error }) => {
      if (error === null) {
        Notification.success(`The data set ${name} is there.`, { autoClose: 6000 });
      } else {
        Notification.error(`The data set ${name} was not added. ${sentenceOf(error)}`, { autoClose: 10_000 });
      }
    });
    const opener = new Opener<Args>(
      app,
      edt,
      {
        name: 'catalogue',
        command,
        icon: catalogueIcon,
        caption: 'Data sets, models, versions, deployments and instance groups.',
        key: () => '',
        label: () => 'Catalogue',
        content: (args, _, keep) => (
          <CataloguePage wanted={args} asked={asked} uploads={uploads} onTab={tab => keep({ tab, deploy: '' })} />
        )
      },
      restorer
    );
    app.commands.addCommand(command, {
      label: args => (args['isPalette'] === true ? 'Data Sets, Models and Instance Groups' : 'Catalogue'),
      caption: 'What jobs are made of, and the queues they wait in',
      icon: catalogueIcon,
      execute: args => {
        const [tab, deploy] = ['tab', 'deploy'].map(name => (typeof args[name] === 'string' ? args[name] : '')) as [string, string];
        const open = opener.find({ tab, deploy });
        const page = opener.open({ tab: tab || 'datasets', deploy });
        if (open !== undefined && tab !== '') {
          asked.emit({ tab, deploy });
        }
        return page;
      }
    });
    palette?.addItem({ command, category: CATEGORY });
    launcher?.add({ command, category: CATEGORY, rank: 3 });
  }
};
