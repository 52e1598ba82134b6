/** The plugin of the side panel, on the left in JupyterLab and in Notebook 7. */
import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { createElement } from 'react';

import { CATEGORY, CommandIDs } from '../commands';
import { edtIcon } from '../icon';
import { IEdt } from '../tokens';
import { JobsPanel } from './panel';

const ID = 'jupyter-edt-panel';

class PanelWidget extends ReactWidget {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly edt: IEdt
  ) {
    super();
    this.id = ID;
    this.title.icon = edtIcon;
    this.title.caption = 'Elastic training';
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', 'Elastic training');
    this.addClass('jp-edt-panel-widget');
  }

  protected override render(): JSX.Element {
    return createElement(JobsPanel, { jobs: this.edt.jobs, commands: this.app.commands, visible: this.isVisible });
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.update();
  }

  protected override onAfterHide(msg: Message): void {
    super.onAfterHide(msg);
    this.update();
  }

  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    this.node.querySelector<HTMLElement>('[tabindex="0"], button, input')?.focus();
  }
}

export const panel: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:panel',
  description: 'The side panel of jobs.',
  autoStart: true,
  requires: [IEdt],
  optional: [ILabShell, ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    edt: IEdt,
    lab: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ) => {
    let widget: PanelWidget | undefined;
    const made = (): PanelWidget => {
      if (!widget || widget.isDisposed) {
        widget = new PanelWidget(app, edt);
        app.shell.add(widget, 'left', { rank: 600, type: 'Elastic training' });
      }
      return widget;
    };
    if (lab) {
      restorer?.add(made(), ID);
    }
    app.commands.addCommand(CommandIDs.openPanel, {
      label: 'Show Jobs',
      caption: 'Training jobs of mine and of everybody',
      icon: edtIcon,
      describedBy: { args: { type: 'object', properties: {} } },
      execute: () => {
        const shown = made();
        // Either may mean "the other way" in Notebook 7, whose side is folded away: what is there is not asked for again.
        if (!shown.isVisible) {
          app.shell.activateById(shown.id);
        }
        if (!shown.isVisible) {
          (app.shell as { expandLeft?: (id: string) => void }).expandLeft?.(shown.id);
        }
        shown.activate();
      }
    });
    palette?.addItem({ command: CommandIDs.openPanel, category: CATEGORY });
  }
};
