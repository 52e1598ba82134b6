/** The one connection all other plugins share. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ServerConnection } from '@jupyterlab/services';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { Api } from './api';
import { closeOnceConnected } from './connection_dialog';
import { Jobs } from './jobs';
import { IEdt } from './tokens';
import { warnWhereTooOld } from './too_old';

export const PLUGIN = 'jupyter-edt:plugin';

export const edt: JupyterFrontEndPlugin<IEdt> = {
  id: PLUGIN,
  description: 'Speaks with the server of elastic training.',
  autoStart: true,
  provides: IEdt,
  optional: [ISettingRegistry],
  activate: (app: JupyterFrontEnd, registry: ISettingRegistry | null): IEdt => {
    warnWhereTooOld(app);
    const settings = app.serviceManager.serverSettings;
    const api = new Api({
      baseUrl: settings.baseUrl,
      token: settings.token,
      send: (url, init) => ServerConnection.makeRequest(url, init, settings)
    });
    const jobs = new Jobs(api, app.serviceManager.events);
    closeOnceConnected(jobs);
    void registry?.load(PLUGIN).then(settings => {
      const apply = (): void => {
        jobs.pollSeconds = settings.get('pollSeconds').composite as number;
      };
      settings.changed.connect(apply);
      apply();
    });
    return { api, jobs };
  }
};
