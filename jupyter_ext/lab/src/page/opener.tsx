/**
 * A kind of page and the command that opens it: one page for each key, put where the application has room for it, and back
 * in its place after a reload.
 */

import type { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import type { LabIcon } from '@jupyterlab/ui-components';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import { TabPanel } from '@lumino/widgets';
import type { ReactElement } from 'react';

import type { IEdt } from '../tokens';

import { EdtContext } from './surroundings';
import { Page } from './page';

/** What a kind of page is made of; `Args` are what its command takes, and what brings it back. */
export interface Kind<Args extends ReadonlyJSONObject> {
  /** Short and unique, such as "job". */
  readonly name: string;
  readonly command: string;
  readonly icon: LabIcon;
  readonly caption: string;
  /** What tells pages of this kind apart; "" when there is only one. */
  readonly key: (args: Args) => string;
  readonly label: (args: Args) => string;
  /** `keep` takes what is to be known after a reload. */
  readonly content: (args: Args, page: Page, keep: (changes: Partial<Args>) => void) => ReactElement;
}

/** Opens pages of one kind. */
export class Opener<Args extends ReadonlyJSONObject> {
  private readonly tracker: WidgetTracker<Page>;
  private readonly args = new Map<string, Args>();

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly edt: IEdt,
    private readonly kind: Kind<Args>,
    restorer: ILayoutRestorer | null
  ) {
    this.tracker = new WidgetTracker<Page>({ namespace: `jupyter-edt-${kind.name}` });
    if (restorer !== null) {
      void restorer.restore(this.tracker, {
        command: kind.command,
        args: page => this.args.get(page.id) ?? {},
        name: page => page.id
      });
    }
  }

  /** The page of these args: the one there is, brought to the front, or a new one. */
  open(args: Args): Page {
    const id = this.id(args);
    const known = this.tracker.find(page => page.id === id);
    if (known !== undefined) {
      this.show(known);
      return known;
    }
    const page = this.make(id, args);
    this.place(page);
    void this.tracker.add(page);
    this.show(page);
    return page;
  }

  /** The page of these args that is open, undefined when there is none. */
  find(args: Args): Page | undefined {
    return this.tracker.find(page => page.id === this.id(args));
  }

  private id(args: Args): string {
    const key = this.kind.key(args);
    return key === '' ? `jp-edt-${this.kind.name}` : `jp-edt-${this.kind.name}-${key}`;
  }

  private make(id: string, args: Args): Page {
    const { app, edt, kind } = this;
    this.args.set(id, args);
    const surroundings = { api: edt.api, jobs: edt.jobs, commands: app.commands };
    const keep = (changes: Partial<Args>): void => {
      this.args.set(id, { ...(this.args.get(id) ?? args), ...changes });
      void this.tracker.save(page);
    };
    const page: Page = new Page({
      id,
      label: kind.label(args),
      caption: kind.caption,
      icon: kind.icon,
      className: `jp-edt-${kind.name}-page`,
      content: self => (
        <EdtContext.Provider value={surroundings}>{kind.content(args, self, keep)}</EdtContext.Provider>
      )
    });
    page.disposed.connect(() => this.args.delete(id));
    return page;
  }

  /**
   * In JupyterLab the main area. Notebook has one document there: on its page of files that is a row of tabs, which takes
   * one more; beside a notebook there is the area below it.
   */
  private place(page: Page): void {
    const { shell } = this.app;
    const [first] = this.app.name === 'Jupyter Notebook' ? shell.widgets('main') : [];
    if (first === undefined) {
      shell.add(page, 'main');
    } else if (first instanceof TabPanel) {
      first.addWidget(page);
    } else {
      shell.add(page, 'down');
    }
  }

  private show(page: Page): void {
    const [first] = this.app.shell.widgets('main');
    if (first instanceof TabPanel && first.widgets.includes(page)) {
      first.currentWidget = page;
    }
    this.app.shell.activateById(page.id);
  }
}
