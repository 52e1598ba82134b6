/** JupyterLab's dialog about a lost connection covers the page until it is closed. Close it once the server answers. */
import { Dialog } from '@jupyterlab/apputils';

import type { Jobs } from './jobs';

// JupyterLab's title in English. In other languages the dialog waits for its button, as it does without this.
const TITLE = 'Server Connection Error';

export function closeOnceConnected(jobs: Jobs): void {
  jobs.changed.connect(() => {
    if (jobs.reach.ok) {
      Dialog.tracker
        .filter(dialog => dialog.node.querySelector('.jp-Dialog-header')?.textContent === TITLE)
        .forEach(dialog => dialog.reject());
    }
  });
}
