/** `edt:compare`: loss curves of up to five jobs in one picture; `ids` are those to begin with. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { type ISignal, Signal } from '@lumino/signaling';
import type { ReadonlyJSONObject } from '@lumino/coreutils';

import { CATEGORY, CommandIDs } from '../commands';
import { compareIcon } from '../page/icons';
import { Opener } from '../page/opener';
import { IEdt } from '../tokens';

import { ComparePage } from './compare_page';

interface Args extends ReadonlyJSONObject {
  ids: string[];
}

/** Jobs that the command names while the page is open. They wait for the page, which may still have to be drawn. */
export class Asked {
  private ids: string[] = [];
  private readonly news = new Signal<this, void>(this);

  get changed(): ISignal<this, void> {
    return this.news;
  }

  add(ids: readonly string[]): void {
    this.ids.push(...ids);
    this.news.emit();
  }

  take(): string[] {
    return this.ids.splice(0);
  }
}

/** The page that compares jobs. */
export const compare: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:compare',
  description: 'Compares up to five jobs.',
  autoStart: true,
  requires: [IEdt],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    edt: IEdt,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ): void => {
    const command = CommandIDs.compare;
    const asked = new Asked();
    const opener = new Opener<Args>(
      app,
      edt,
      {
        name: 'compare',
        command,
        icon: compareIcon,
        caption: 'Up to five jobs in one picture.',
        key: () => '',
        label: () => 'Compare Jobs',
        content: (args, _, keep) => <ComparePage ids={args.ids} asked={asked} onChosen={ids => keep({ ids })} />
      },
      restorer
    );
    app.commands.addCommand(command, {
      label: args => (Array.isArray(args['ids']) ? 'Compare …' : 'Compare Jobs'),
      caption: 'Loss curves of up to five jobs in one picture',
      icon: compareIcon,
      execute: args => {
        const given: unknown[] = Array.isArray(args['ids']) ? args['ids'] : [];
        const ids = given.filter((id): id is string => typeof id === 'string');
        const open = opener.find({ ids });
        const page = opener.open({ ids });
        if (open !== undefined) {
          asked.add(ids);
        }
        return page;
      }
    });
    palette?.addItem({ command, category: CATEGORY });
  }
};
