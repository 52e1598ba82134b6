/** The plugin that draws the monitors of a page, see `host.ts`. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { createElement } from 'react';
import { createRoot } from 'react-dom/client';

import { IEdt } from '../tokens';
import { VERSION, offerHost } from './host';
import { Monitor } from './monitor';

export const monitor: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:monitor',
  description: 'Draws the widgets of monitors in the output of cells.',
  autoStart: true,
  requires: [IEdt],
  activate: (app: JupyterFrontEnd, edt: IEdt) => {
    const surroundings = { api: edt.api, jobs: edt.jobs, commands: app.commands };
    offerHost({
      version: VERSION,
      baseUrl: edt.api.transport.baseUrl,
      mount: (element, place) => {
        const root = createRoot(element.appendChild(document.createElement('div')));
        root.render(createElement(Monitor, { place, surroundings }));
        return () => root.unmount();
      }
    });
  }
};
