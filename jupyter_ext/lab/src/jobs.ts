/**
 * What is known of jobs and of the machine, for everything on the screen: asked for once, however many look.
 *
 * Who shows something says so (`watchJob`, `watchList`, `watchCluster`) and lets go again; one slow poll asks for what is
 * watched and can still change, and stands by while the page is hidden. Changes of state come over the event stream that
 * JupyterLab has open anyway, and are followed by one look at the job. Nothing is ever guessed: a view is what the server
 * said, with the moment it said so.
 */
import type { Event } from '@jupyterlab/services';
import { DisposableDelegate, type IDisposable } from '@lumino/disposable';
import { Poll, Throttler } from '@lumino/polling';
import { type ISignal, Signal } from '@lumino/signaling';

import { type Api, ApiError, sentenceOf } from './api';
import { Listing, MOST } from './listing';
import { type IReach, type Question, Reach } from './reach';
import { type ICluster, type IClusterJob, type IJobPage, type IJobView, type IKnown, type IStateEvent, isFinal } from './views';

export const STATE_SCHEMA = 'https://schema.jupyter-edt.org/edt/job_state/v1';

export type Scope = 'mine' | 'all';

const FEW = 8;
const GATHER_MS = 150;
const NEWS_MS = 1000;
/** The longest pause between two looks at a server that does not answer: a restarted one is seen within ten seconds. */
const AWAY_MS = 8000;

export class Jobs implements IDisposable {
  private readonly known = new Map<string, IKnown>();
  private readonly listings: Record<Scope, Listing> = { mine: new Listing(), all: new Listing() };
  private readonly watched = new Map<string, number>();
  /** How many look at a list. */
  private readonly lists: Record<Scope, number> = { mine: 0, all: 0 };
  private readonly heard = new Set<string>();
  /** Jobs that were not known before the news of their end. */
  private readonly ending = new Set<string>();
  private clusters = 0;
  private machine: ICluster | undefined;
  private whoami: string | undefined;
  private readonly reached = new Reach();
  private gathering: ReturnType<typeof setTimeout> | undefined;
  private disposed = false;
  private readonly poll: Poll;
  /** A look because of news; a machine full of jobs has some all the time. */
  private readonly again: Throttler<void>;
  private readonly changes = new Signal<this, string | null>(this);
  private readonly ends = new Signal<this, IJobView>(this);
  /** Emitted with the id of a job whose own page comes into view, or shows its end. */
  readonly looked = new Signal<this, string>(this);

  constructor(
    readonly api: Api,
    private readonly events: Event.IManager | undefined
  ) {
    this.events?.stream.connect(this.hear, this);
    this.poll = new Poll({
      auto: true,
      name: 'jupyter-edt:jobs',
      frequency: { interval: 3000, backoff: 2, max: AWAY_MS },
      standby: 'when-hidden',
      factory: () => this.look()
    });
    this.again = new Throttler(() => this.poll.refresh(), NEWS_MS);
    window.addEventListener('focus', this.returned);
  }

  /** Something is known anew: of the job with this id, or (null) of the list, the machine or the server. */
  get changed(): ISignal<this, string | null> {
    return this.changes;
  }

  /** A job of mine, but no trial of a search, has ended while we looked. */
  get ended(): ISignal<this, IJobView> {
    return this.ends;
  }

  get reach(): IReach {
    return this.reached.now;
  }

  /** Who the server takes us for, undefined before it has answered. */
  get user(): string | undefined {
    return this.whoami;
  }

  get cluster(): ICluster | undefined {
    return this.machine;
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  /** Look this often while the page is visible (seconds). */
  set pollSeconds(seconds: number) {
    const interval = 1000 * seconds;
    this.poll.frequency = { backoff: 2, interval, max: Math.max(interval, AWAY_MS) };
  }

  get(id: string): IKnown | undefined {
    return this.known.get(id);
  }

  /** The jobs of a list, those that have not ended first, each newest first; undefined before the first answer. `more` says that there are older ones. */
  list(scope: Scope): { jobs: IJobView[]; more: boolean } | undefined {
    const listing = this.listings[scope];
    if (!listing.known) {
      return undefined;
    }
    const jobs = listing.members.map(id => this.known.get(id)?.view).filter(view => view !== undefined);
    jobs.sort((a, b) => Number(isFinal(a.state)) - Number(isFinal(b.state)) || b.created - a.created);
    return { jobs, more: listing.next !== undefined };
  }

  /** True for another user's job, of which the server tells in the list of all jobs alone. */
  isForeign(id: string): boolean {
    const owner = this.known.get(id)?.view?.owner;
    return owner !== undefined && this.whoami !== undefined && owner !== this.whoami;
  }

  /** Ask for the next older jobs of a list, which stay in it; ApiError when that does not work. */
  async older(scope: Scope): Promise<void> {
    const listing = this.listings[scope];
    if (listing.next === undefined) {
      return;
    }
    const page = await this.api.jobs({ all: scope === 'all', limit: MOST, before: listing.next });
    this.answered('list');
    listing.takeOlder(page);
    page.jobs.forEach(view => this.take(view));
    this.changes.emit(null);
  }

  watchJob(id: string): IDisposable {
    this.watched.set(id, (this.watched.get(id) ?? 0) + 1);
    const known = this.known.get(id);
    if (!known || !known.view || !isFinal(known.view.state)) {
      this.soon(id);
    }
    return new DisposableDelegate(() => {
      const left = (this.watched.get(id) ?? 1) - 1;
      if (left) {
        this.watched.set(id, left);
      } else {
        this.watched.delete(id);
      }
    });
  }

  watchList(scope: Scope): IDisposable {
    this.lists[scope] += 1;
    this.listings[scope].outdate();
    void this.poll.refresh();
    return new DisposableDelegate(() => {
      this.lists[scope] -= 1;
    });
  }

  watchCluster(): IDisposable {
    this.clusters += 1;
    void this.poll.refresh();
    return new DisposableDelegate(() => {
      this.clusters -= 1;
    });
  }

  /** Ask at once for a job, or for all that is watched. */
  async refresh(id?: string): Promise<void> {
    if (id !== undefined) {
      await this.ask(id);
    } else {
      this.listings.mine.outdate();
      this.listings.all.outdate();
      await this.poll.refresh();
      await this.poll.tick;
    }
  }

  /** Take in what the server has just answered to a verb. */
  put(view: IJobView): void {
    this.take(view);
    this.changes.emit(view.id);
    void this.poll.refresh();
  }

  /** Forget a job that was deleted. */
  drop(id: string): void {
    const known = this.known.get(id);
    this.known.set(id, { view: known?.view, taken: known?.taken ?? 0, gone: true, trouble: '' });
    this.unlist(id);
    this.changes.emit(id);
    this.changes.emit(null);
  }

  dispose(): void {
    if (!this.disposed) {
      this.disposed = true;
      clearTimeout(this.gathering);
      window.removeEventListener('focus', this.returned);
      this.again.dispose();
      this.poll.dispose();
      this.events?.stream.disconnect(this.hear, this);
      Signal.clearData(this);
    }
  }

  // --- asking --------------------------------------------------------------------------------------------------------

  /** One look at all that is watched; throws when the server does not answer, which slows the poll down. */
  private async look(): Promise<void> {
    const asked: Promise<void>[] = [];
    const listing: Scope | undefined = this.lists.all ? 'all' : this.lists.mine ? 'mine' : undefined;
    const live = new Set<string>();
    for (const [id, known] of this.known) {
      const watched = this.watched.has(id) && !this.isForeign(id);
      const shown = watched || (listing !== undefined && this.listings[listing].has(id));
      if (shown && !known.gone && known.view && !isFinal(known.view.state)) {
        live.add(id);
      }
    }
    for (const id of this.watched.keys()) {
      if (!this.known.has(id) || (this.known.get(id)?.trouble && !this.isForeign(id))) {
        live.add(id);
      }
    }
    const old = listing !== undefined && this.listings[listing].isOld(now());
    if (old || live.size > FEW || [...live].some(id => this.isForeign(id))) {
      asked.push(this.askMany(listing ?? 'all', old ? MOST : this.reaching(live), live));
    } else {
      asked.push(...[...live].map(id => this.ask(id)));
    }
    if (this.clusters) {
      asked.push(this.askCluster());
    }
    if (asked.length && this.whoami === undefined) {
      asked.push(this.askInfo());
    }
    const failed = (await Promise.allSettled(asked)).find(one => one.status === 'rejected');
    if (failed) {
      throw failed.reason;
    }
  }

  private async ask(id: string): Promise<void> {
    try {
      const view = await this.api.job(id);
      this.answered();
      this.take(view);
    } catch (error) {
      const before = this.known.get(id);
      const gone = error instanceof ApiError && error.status === 404 && error.code !== '';
      this.failed(error);
      if (gone) {
        this.unlist(id);
      }
      this.known.set(id, {
        view: before?.view,
        taken: before?.taken ?? 0,
        gone,
        trouble: gone ? '' : sentenceOf(error)
      });
      if (error instanceof ApiError && error.unreachable) {
        this.changes.emit(id);
        throw error;
      }
    }
    this.changes.emit(id);
  }

  /** Ask for a list, and for those of these that are not in it. */
  private async askMany(scope: Scope, limit: number, ids: ReadonlySet<string>): Promise<void> {
    const seen = await this.askList(scope, limit);
    await Promise.all([...ids].filter(id => !seen.has(id) && !this.isForeign(id)).map(id => this.ask(id)));
  }

  /** How many of the newest jobs must be asked for to have all of these among them; old ones are left out. */
  private reaching(ids: ReadonlySet<string>): number {
    const oldest = Math.min(...[...ids].map(id => this.known.get(id)?.view?.created ?? Infinity));
    const newer = [...this.known.values()].filter(known => known.view && known.view.created >= oldest).length;
    return Math.min(MOST, newer + FEW);
  }

  /** Ask for the newest `limit`; the longest possible answer says which jobs there are, a shorter one how some are. */
  private async askList(scope: Scope, limit = MOST): Promise<ReadonlySet<string>> {
    let page: IJobPage;
    try {
      page = await this.api.jobs({ all: scope === 'all', limit });
    } catch (error) {
      this.failed(error, 'list');
      this.changes.emit(null);
      throw error;
    }
    this.answered('list');
    const created = (id: string): number => this.known.get(id)?.view?.created ?? Infinity;
    const left = limit === MOST ? this.listings[scope].takeNewest(page, created, now()) : [];
    page.jobs.forEach(view => this.take(view));
    left.filter(id => this.watched.has(id)).forEach(id => this.soon(id));
    for (const id of this.watched.keys()) {
      this.changes.emit(id);
    }
    this.changes.emit(null);
    return new Set(page.jobs.map(view => view.id));
  }

  private async askCluster(): Promise<void> {
    const before = this.machine;
    try {
      this.machine = await this.api.cluster();
      this.answered('machine');
    } catch (error) {
      this.failed(error, 'machine');
      this.changes.emit(null);
      throw error;
    }
    const live = new Set(this.machine.jobs.map(job => job.id));
    const listed = (job: IClusterJob): boolean => job.owner === this.whoami && !job.search;
    for (const job of before?.jobs ?? []) {
      if (!live.has(job.id) && (listed(job) || this.watched.has(job.id))) {
        this.soon(job.id); // has ended, and no event told us
      }
    }
    for (const job of this.machine.jobs) {
      if (listed(job) && this.lists.mine + this.lists.all && !this.known.has(job.id)) {
        this.soon(job.id); // has begun, and no event told us
      }
    }
    this.changes.emit(null);
  }

  private async askInfo(): Promise<void> {
    this.whoami = (await this.api.info()).user;
    this.changes.emit(null);
  }

  /** Ask for a job in a moment, together with the others that are asked for until then. */
  private soon(id: string): void {
    this.heard.add(id);
    this.gathering ??= setTimeout(() => {
      this.gathering = undefined;
      const ids = [...this.heard];
      this.heard.clear();
      const few = ids.length <= FEW;
      const scope = this.lists.mine ? 'mine' : 'all';
      const asked = few ? ids.map(one => this.ask(one)) : [this.askMany(scope, MOST, new Set(ids))];
      void Promise.allSettled(asked); // a server that does not answer is known from then on, and asked again by the poll
    }, GATHER_MS);
  }

  // --- taking in -----------------------------------------------------------------------------------------------------

  private hear(_: Event.IManager, message: Event.Emission): void {
    if (message.schema_id !== STATE_SCHEMA) {
      return;
    }
    const told = message as unknown as IStateEvent;
    // A trial is in no list, so only its own page asks for it: a search may have thousands.
    const listed = !told.search;
    const known = this.known.get(told.job);
    const mine = told.owner === this.whoami;
    if (listed && !known?.view && told.before && isFinal(told.state)) {
      this.ending.add(told.job);
    }
    const foreign = this.whoami !== undefined && !mine;
    if (!foreign && (this.watched.has(told.job) || (listed && (mine || this.lists.all)))) {
      this.soon(told.job);
    }
    if (listed && foreign && !known) {
      this.listings.all.outdate();
    }
    if (this.clusters || (foreign && this.lists.all)) {
      void this.again.invoke();
    }
  }

  private take(view: IJobView): void {
    const before = this.known.get(view.id)?.view;
    this.known.set(view.id, { view, taken: now(), gone: false, trouble: '' });
    if (view.search) {
      return;
    }
    this.listings.all.add(view.id);
    if (view.owner === this.whoami) {
      this.listings.mine.add(view.id);
    }
    const lived = (before && !isFinal(before.state)) || this.ending.delete(view.id);
    if (lived && isFinal(view.state) && view.owner === this.whoami) {
      this.ends.emit(view);
    }
  }

  private answered(question?: Question): void {
    if (this.reached.answered(question)) {
      this.changes.emit(null);
    }
  }

  private failed(error: unknown, question?: Question): void {
    if (this.reached.failed(error, question)) {
      this.changes.emit(null);
    }
  }

  private unlist(id: string): void {
    this.listings.mine.remove(id);
    this.listings.all.remove(id);
  }

  /** Somebody comes back to this page, perhaps from logging in. */
  private readonly returned = (): void => {
    if (!this.reach.ok) {
      void this.poll.refresh();
    }
  };
}

function now(): number {
  return Date.now() / 1000;
}
