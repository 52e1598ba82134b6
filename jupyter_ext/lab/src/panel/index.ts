/** The plugin of the side panel, on the left in JupyterLab and in Notebook 7. */
import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { createElement } from 'react';

import { CATEGORY, CommandIDs } from '../commands';
import { edtIcon } from '../icon';
import { IEdt } from '../tokens';
import { ALL_OF_MINE, type IChoice } from './filters';
import { JobsPanel } from './panel';

const ID = 'jupyter-edt-panel';
const ROW = '.jp-edt-row';

class PanelWidget extends ReactWidget {
  private choice = ALL_OF_MINE;
  private readonly entering = { current: false };
  /** The row whose menu is open. */
  private menuOf: HTMLElement | null = null;

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
    this.node.tabIndex = -1;
    this.node.addEventListener('focusout', event => {
      // A person who goes elsewhere is not brought back by a list that arrives later.
      if (event.relatedTarget !== null && !this.node.contains(event.relatedTarget as Node)) {
        this.entering.current = false;
      }
    });
    this.node.addEventListener('contextmenu', event => {
      this.menuOf = (event.target as Element).closest<HTMLElement>(ROW);
    });
    app.contextMenu.menu.aboutToClose.connect(() => {
      this.menuOf?.focus({ preventScroll: true });
      this.menuOf = null;
    });
  }

  /** Show these jobs. */
  choose(choice: IChoice): void {
    this.choice = choice;
    this.update();
  }

  protected override render(): JSX.Element {
    return createElement(JobsPanel, {
      jobs: this.edt.jobs,
      commands: this.app.commands,
      visible: this.isVisible,
      choice: this.choice,
      onChoice: choice => this.choose(choice),
      entering: this.entering
    });
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
    this.entering.current = true;
    this.node.focus({ preventScroll: true });
    this.update();
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
      describedBy: {
        args: {
          type: 'object',
          properties: {
            chips: { type: 'array', items: { type: 'string' }, description: 'Show my jobs of these groups of states alone.' }
          }
        }
      },
      execute: args => {
        const shown = made();
        if (Array.isArray(args['chips'])) {
          shown.choose({ ...ALL_OF_MINE, chips: new Set(args['chips'].map(String)) });
        }
        // Either may mean "the other way" in Notebook 7, whose side is folded away: what is there is not asked for again.
        if (!shown.isVisible) {
          app.shell.activateById(shown.id);
        }
        if (!shown.isVisible) {
          (app.shell as { expandLeft?: (id: string) => void }).expandLeft?.(shown.id);
        }
        // After the palette, which gives the focus back to the page that it was opened over.
        setTimeout(() => shown.activate());
      }
    });
    palette?.addItem({ command: CommandIDs.openPanel, category: CATEGORY });
  }
};
