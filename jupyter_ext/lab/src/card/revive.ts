/**
 * Shows the card where a monitor's widgets have lost their kernel.
 *
 * A widget hides what lies beside it, also when its kernel is gone and it can show nothing but "model not found". The
 * monitor notes in its output's metadata whose kernel its widgets are. Where the notebook has another one, or none, or
 * it is restarted, the widgets are taken out of that output: the job's card, which needs no kernel, or the HTML that lies
 * beside them, shows by itself. Nothing else in a notebook is touched.
 *
 * A page that loads slowly shows "model not found" too where the kernel has the model: ipywidgets 8.1 looks for it for two
 * seconds, and a page that was busy all the while gives up in the moment in which it has come. Such a widget is drawn
 * once more; the card takes its place when there is no model then either.
 */
import type { ISessionContext } from '@jupyterlab/apputils';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import type { CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { Kernel } from '@jupyterlab/services';
import type { Panel } from '@lumino/widgets';

const KERNEL = 'edt_kernel';
const WIDGET = 'application/vnd.jupyter.widget-view+json';
/** The class that ipywidgets gives to an output itself, and not to a widget in it, when it gives up. */
const GIVEN_UP = 'jupyter-widgets';
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
  drawAgain(panel);
}

function kernelOf(session: ISessionContext): string {
  return session.session?.kernel?.id ?? '';
}

/** Take the widgets of every kernel but this one out of the outputs that monitors have left. */
function takeOut(panel: NotebookPanel, kernel: string): void {
  for (const { cell, at, whose } of monitors(panel)) {
    if (whose !== kernel) {
      removeWidget(cell.model.outputs, at);
    }
  }
}

function removeWidget(outputs: CodeCell['model']['outputs'], at: number): void {
  const output = outputs.get(at).toJSON();
  const { [WIDGET]: _widgets, ...data } = output['data'] as Record<string, unknown>;
  const { [KERNEL]: _kernel, ...metadata } = output['metadata'] as Record<string, unknown>;
  outputs.set(at, { ...output, data, metadata } as never);
}

/** Draw each monitor whose model came too late once more. */
function drawAgain(panel: NotebookPanel): void {
  for (const { cell, at } of monitors(panel)) {
    // A cell out of sight has no output area yet, and finds the models there when it is scrolled to.
    const drawn = cell.outputArea?.widgets[at] as Panel | undefined;
    const output = drawn?.widgets.find(each => 'renderModel' in each) as IRenderMime.IRenderer | undefined;
    if (output === undefined) {
      continue;
    }
    let tried = false;
    const changes = new MutationObserver(() => {
      if (output.isDisposed) {
        changes.disconnect();
      } else if (output.node.classList.contains(GIVEN_UP)) {
        output.node.classList.remove(GIVEN_UP);
        if (tried) {
          removeWidget(cell.model.outputs, at);
        } else {
          tried = true;
          void output.renderModel(cell.model.outputs.get(at));
        }
      }
    });
    changes.observe(output.node, { childList: true });
  }
}

/** The outputs with a monitor's widgets, each with the kernel that made them. */
function* monitors(panel: NotebookPanel): Generator<{ cell: CodeCell; at: number; whose: string }> {
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
      const whose = ((output['metadata'] ?? {}) as Record<string, unknown>)[KERNEL];
      if (typeof whose === 'string' && WIDGET in ((output['data'] ?? {}) as Record<string, unknown>)) {
        yield { cell: cell as CodeCell, at, whose };
      }
    }
  }
}
