/**
 * The renderer of `application/vnd.edt.job+json` and of a search's `…search+json`: a card that needs no kernel, in trusted and untrusted notebooks.
 *
 * It is safe: it reads a job or a search by its id from the server the page is from, draws text, and acts only when somebody clicks.
 * It asks for it only while it is on the screen. Where the server cannot say how it is (deleted, another server's,
 * a bundle of another version), the HTML beside it in the notebook is shown, cleaned as the notebook's trust demands.
 */
import { RenderedHTML } from '@jupyterlab/rendermime';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import { Panel, Widget } from '@lumino/widgets';
import { type ReactElement, createElement } from 'react';

import { Shown } from '../page/shown';
import { EdtContext } from '../page/surroundings';
import type { IEdt } from '../tokens';
import type { ISearchView } from '../views';
import { type IBundle, MIME, SEARCH_MIME, parseBundle, parseSearch } from './bundle';
import { Card } from './card';
import { SearchCard } from './search_card';

export class JobCard extends Panel implements IRenderMime.IRenderer {
  private watching: IDisposable | null = null;
  private bundle: IBundle | null = null;
  private search: Seen | null = null;
  private snapshot: RenderedHTML | null = null;
  private model: IRenderMime.IMimeModel | null = null;
  private stored = false;
  private readonly observer: IntersectionObserver;

  constructor(
    private readonly edt: IEdt,
    private readonly commands: CommandRegistry,
    private readonly options: IRenderMime.IRendererOptions
  ) {
    super();
    this.addClass('jp-edt-rendered-card');
    // Several changes may be told at once, the newest last.
    this.observer = new IntersectionObserver(seen => this.look(seen.at(-1)?.isIntersecting ?? false));
  }

  /** Show this model; called again when the kernel updates the display. */
  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.model = model;
    const ofSearch = model.data[SEARCH_MIME] !== undefined;
    const parsed = ofSearch ? parseSearch(model.data[SEARCH_MIME]) : parseBundle(model.data[MIME]);
    const seen = this.watching !== null || this.search?.seen === true;
    this.look(false);
    this.drop();
    if (typeof parsed === 'string') {
      this.bundle = null;
      const says = new Widget();
      says.addClass('jp-edt-age');
      says.node.textContent = parsed;
      this.addWidget(says);
      await this.store(true);
      return;
    }
    this.stored = false;
    const onStored = (wanted: boolean): void => this.turn(wanted);
    if (ofSearch) {
      this.bundle = null;
      const surroundings = { ...this.edt, commands: this.commands };
      const card = createElement(SearchCard, { bundle: parsed as IBundle<ISearchView>, onStored });
      this.search = new Seen(createElement(EdtContext.Provider, { value: surroundings }, card));
      this.addWidget(this.search);
    } else {
      this.bundle = parsed as IBundle;
      const card = createElement(Card, { jobs: this.edt.jobs, commands: this.commands, bundle: this.bundle, onStored });
      this.addWidget(ReactWidget.create(card));
    }
    this.look(seen);
  }

  override dispose(): void {
    this.observer.disconnect();
    this.look(false);
    super.dispose();
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.observer.observe(this.node);
  }

  protected override onBeforeDetach(msg: Message): void {
    this.observer.disconnect();
    this.look(false);
    super.onBeforeDetach(msg);
  }

  /** Ask for the job or the search while it is seen. */
  private look(seen: boolean): void {
    this.search?.look(seen);
    if (seen && this.bundle && !this.watching) {
      this.watching = this.edt.jobs.watchJob(this.bundle.id);
    } else if (!seen && this.watching) {
      this.watching.dispose();
      this.watching = null;
    }
  }

  private turn(wanted: boolean): void {
    if (wanted !== this.stored) {
      this.stored = wanted;
      // Not while React draws: what follows changes the same node.
      queueMicrotask(() => void this.store(wanted));
    }
  }

  /** Show what the notebook itself stored, or put it away. */
  private async store(wanted: boolean): Promise<void> {
    if (this.isDisposed || !this.model) {
      return;
    }
    if (!wanted) {
      this.snapshot?.dispose();
      this.snapshot = null;
    } else if (!this.snapshot && this.model.data['text/html'] !== undefined) {
      this.snapshot = new RenderedHTML({ ...this.options, mimeType: 'text/html' });
      this.addWidget(this.snapshot);
      await this.snapshot.renderModel(this.model);
    }
  }

  private drop(): void {
    this.snapshot = null;
    this.search = null;
    for (const child of [...this.widgets]) {
      child.dispose();
    }
  }
}

/** What is drawn in it knows whether it is seen. */
class Seen extends ReactWidget {
  seen = false;

  constructor(private readonly content: ReactElement) {
    super();
  }

  look(seen: boolean): void {
    this.seen = seen;
    this.update();
  }

  protected override render(): ReactElement {
    return createElement(Shown.Provider, { value: this.seen }, this.content);
  }
}
