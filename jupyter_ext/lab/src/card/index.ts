/** The plugin that registers the renderer of cards, of jobs and of searches, in JupyterLab and in Notebook 7 alike. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';

import { IEdt } from '../tokens';
import { MIME, SEARCH_MIME } from './bundle';
import { JobCard } from './renderer';

// Before text/html (60) and the widgets (0 is tried first): the card is the richest form of what a cell has returned.
const RANK = 10;

export const card: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:card',
  description: 'Live cards of jobs and searches in the output of cells.',
  autoStart: true,
  requires: [IEdt, IRenderMimeRegistry],
  activate: (app: JupyterFrontEnd, edt: IEdt, registry: IRenderMimeRegistry) => {
    registry.addFactory(
      {
        safe: true,
        mimeTypes: [MIME, SEARCH_MIME],
        defaultRank: RANK,
        createRenderer: options => new JobCard(edt, app.commands, options)
      },
      RANK
    );
  }
};
