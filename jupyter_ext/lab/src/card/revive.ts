/**
 * Shows the card where a monitor's widgets have lost their kernel.
 *
 * A widget hides what lies beside it, also when its kernel is gone and it can show nothing but "model not found". The
 * monitor notes in its output's metadata whose kernel its widgets are. Where the notebook has another one, or none, or
 * it is restarted, the widgets are taken out of that output: the job's card, which needs no kernel, or the HTML that lies
 * beside them, shows by itself. Nothing else in a notebook is touched.
 */
import type { ISessionContext } from '@jupyterlab/apputils';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import type { Kernel } from '@jupyterlab/services';

const KERNEL = 'edt_kernel';
const WIDGET = 'application/vnd.jupyter.widget-view+json';
const LOST: readonly Kernel.Status[] = ['restarting', 'autorestarting', 'terminating', 'dead'];

export const revive: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:revive',
  description: 'Shows the card of a job in place of a monitor whose kernel is gone.',
  autoStart: true,
  optional: [INotebookTracker],
  activate: (_: JupyterFrontEnd, notebooks: INotebookTracker | null) => {
    notebooks?.widgetAdded.connect((_, panel) => void follow(panel));
  }
};

async function follow(panel: NotebookPanel): Promise<void> {
  await panel.context.ready;
  const session = panel.sessionContext;
  session.statusChanged.connect((_, status) => {
    if (LOST.includes(status)) {
      takeOut(panel, '');
    }
  });
  session.kernelChanged.connect((_, change) => takeOut(panel, change.newValue?.id ?? ''));
  await session.ready;
  takeOut(panel, kernelOf(session));
}

function kernelOf(session: ISessionContext): string {
  return session.session?.kernel?.id ?? '';
}

/** Take the widgets of every kernel but this one out of the outputs that monitors have left. */
function takeOut(panel: NotebookPanel, kernel: string): void {
  if (panel.isDisposed) {
    return;
  }
  for (const cell of panel.content.widgets) {
    if (cell.model.type !== 'code') {
      continue;
    }
    const outputs = (cell as CodeCell).model.outputs;
    for (let at = 0; at < outputs.length; at++) {
      const output = outputs.get(at).toJSON();
      const data = (output['data'] ?? {}) as Record<string, unknown>;
      const metadata = (output['metadata'] ?? {}) as Record<string, unknown>;
      const whose = metadata[KERNEL];
      if (typeof whose === 'string' && whose !== kernel && WIDGET in data) {
        const { [WIDGET]: _widgets, ...rest } = data;
        const { [KERNEL]: _kernel, ...others } = metadata;
        outputs.set(at, { ...output, data: rest, metadata: others } as never);
      }
    }
  }
}
