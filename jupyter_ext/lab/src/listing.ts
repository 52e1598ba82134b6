/**
 * A list of jobs page by page: which jobs are in it, how old that is, and where it goes on. The newest page is asked for
 * again and again; older ones stay once they were asked for. It knows ids alone, and asks nothing itself. Pure.
 */
import type { IJobPage } from './views';

/** Jobs of a page at most; of a page that is not shorter there may be older ones. */
export const MOST = 1000;
/** After so many seconds a list is old: which jobs there are may have changed without any news. */
const OLD = 60;

export class Listing {
  private ids = new Set<string>();
  /** When the newest page came, seconds since the epoch; 0 for never, 1 for too long ago. */
  private asked = 0;
  /** Where it goes on below what is known of it; undefined at its end. */
  private beyond: string | undefined;
  /** Somebody has asked for more than the newest. */
  private further = false;

  /** False before the first answer. */
  get known(): boolean {
    return this.asked > 0;
  }

  get members(): readonly string[] {
    return [...this.ids];
  }

  /** The cursor of the next older page; undefined when there is none. */
  get next(): string | undefined {
    return this.beyond;
  }

  has(id: string): boolean {
    return this.ids.has(id);
  }

  add(id: string): void {
    this.ids.add(id);
  }

  remove(id: string): void {
    this.ids.delete(id);
  }

  /** To be asked for with the next look. */
  outdate(): void {
    this.asked = this.asked && 1;
  }

  isOld(now: number): boolean {
    return now - this.asked > OLD;
  }

  /**
   * Take the newest page, as long as it may be (`MOST`), for which jobs there are; `created` tells a job's time. The ids of
   * those that were in the list and are not any more.
   */
  takeNewest(page: IJobPage, created: (id: string) => number, now: number): string[] {
    const before = this.ids;
    const seen = new Set(page.jobs.map(view => view.id));
    const oldest = page.next === undefined ? -Infinity : Math.min(...page.jobs.map(view => view.created));
    const kept = this.further ? [...before].filter(id => created(id) < oldest) : [];
    this.ids = new Set([...seen, ...kept]);
    this.asked = now;
    if (!this.further) {
      this.beyond = page.next;
    }
    return [...before].filter(id => !this.ids.has(id));
  }

  /** Take the next older page, which stays. */
  takeOlder(page: IJobPage): void {
    this.further = true;
    this.beyond = page.next;
    page.jobs.forEach(view => this.ids.add(view.id));
  }
}
