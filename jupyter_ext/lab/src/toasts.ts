/**
 * A message when a job of mine ends, with the way to it. Jobs that end one after the other share a message, so that at most
 * one lies over the page. It leaves after 20 seconds, or when its jobs are opened, and until then it stays in the bell.
 */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { CommandIDs, type Commands } from './commands';
import { PLUGIN } from './edt';
import { LOOKS } from './looks';
import { chipsOf } from './panel/filters';
import { IEdt } from './tokens';
import { type IJobView, hasFailed } from './views';
import { count, progressWords, timeWords, whyWords } from './words';

const SHOWN_MS = 20_000;
/** Jobs that end within this time are told at once. */
const GATHER_MS = 300;
/** How often to look whether the page shows the newest text. */
const LOOK_MS = 500;

/** The message about ends of jobs. Pure. */
export function endWords(views: readonly IJobView[]): string {
  const [view] = views;
  if (view === undefined || views.length > 1) {
    const failed = views.filter(each => hasFailed(each.state)).length;
    if (failed === views.length) {
      return `${count(failed, 'job')} failed`;
    }
    const words = new Map<string, number>();
    views.forEach(each => words.set(endWord(each), (words.get(endWord(each)) ?? 0) + 1));
    return `${count(views.length, 'job')} ended: ${[...words].map(([word, n]) => `${n} ${word}`).join(', ')}`;
  }
  const ends = { FINISHED: 'has finished', KILLED: 'was stopped', FAILED: 'has failed', ERROR: 'could not be run' };
  const end = ends[view.state as keyof typeof ends] ?? 'has ended';
  const rest = [whyWords(view), view.state === 'FINISHED' ? progressWords(view) : '', timeWords(view)];
  return `${view.name} ${end}. ${rest.filter(Boolean).join(' · ')}`;
}

function endWord(view: IJobView): string {
  return hasFailed(view.state) ? LOOKS.FAILED.word : LOOKS[view.state].word;
}

/** The messages that are on the page or in the bell. */
class Ends {
  /** By the id of each message, the jobs that it tells of. */
  private readonly told = new Map<string, readonly IJobView[]>();
  private fresh: IJobView[] = [];
  private newest = '';
  private since = 0;

  constructor(private readonly commands: Commands) {}

  /** Tell of this job in a moment. */
  add(view: IJobView): void {
    this.fresh.push(view);
    if (this.fresh.length === 1) {
      setTimeout(() => this.tell(), GATHER_MS);
    }
  }

  /** Tell no more of this job: a person looks at it. */
  seen(id: string): void {
    this.fresh = this.fresh.filter(view => view.id !== id);
    for (const [message, views] of this.told) {
      const left = views.filter(view => view.id !== id);
      if (!left.length) {
        this.told.delete(message);
        Notification.dismiss(message);
      } else if (left.length < views.length) {
        this.change(message, left);
      }
    }
  }

  private tell(): void {
    const views = this.fresh;
    this.fresh = [];
    if (!views.length) {
      return;
    }
    const before = this.onPage() || Date.now() - this.since < SHOWN_MS ? this.known(this.newest) : [];
    this.since = Date.now();
    if (before.length) {
      this.change(this.newest, [...before.filter(view => views.every(each => each.id !== view.id)), ...views], true);
    } else {
      this.newest = Notification.emit(endWords(views), typeOf(views), this.options(views, SHOWN_MS));
      this.told.set(this.newest, views);
    }
    this.look();
  }

  /** What a message tells of; nothing once it was dismissed. */
  private known(message: string): readonly IJobView[] {
    if (!Notification.manager.has(message)) {
      this.told.delete(message);
    }
    return this.told.get(message) ?? [];
  }

  /** Replace what a message says. One that has left the page comes back only where it is `urgent`. */
  private change(message: string, views: readonly IJobView[], urgent = false): void {
    if (this.known(message).length) {
      this.told.set(message, views);
      // JupyterLab lets what closes after 0 ms into the bell alone.
      const closes = urgent || document.getElementById(message) !== null ? SHOWN_MS : 0;
      Notification.update({ id: message, message: endWords(views), type: typeOf(views), ...this.options(views, closes) });
    }
  }

  private onPage(): boolean {
    return document.getElementById(this.newest) !== null;
  }

  /** JupyterLab loses a change of a message that it is still about to show: look until the page has the newest text. */
  private look(): void {
    setTimeout(() => {
      const views = this.known(this.newest);
      const shown = document.getElementById(this.newest);
      if (!views.length || Date.now() - this.since > SHOWN_MS) {
        return;
      }
      if (shown === null) {
        this.look();
      } else if (!shown.textContent?.startsWith(endWords(views).slice(0, 100))) {
        this.change(this.newest, views);
        this.look();
      }
    }, LOOK_MS);
  }

  private options(views: readonly IJobView[], autoClose: number): Pick<Notification.IOptions<never>, 'actions' | 'autoClose'> {
    const [only] = views;
    const several = views.length > 1 || only === undefined || !this.commands.hasCommand(CommandIDs.openJob);
    const failed = views.filter(view => hasFailed(view.state));
    const chips = chipsOf((failed.length ? failed : views).map(view => view.state));
    const callback = several
      ? () => void this.commands.execute(CommandIDs.openPanel, { chips })
      : () => void this.commands.execute(CommandIDs.openJob, { id: only.id });
    return { autoClose, actions: [{ label: several ? 'Show' : 'Open', callback }] };
  }
}

function typeOf(views: readonly IJobView[]): Notification.TypeOptions {
  const bad = views.some(view => hasFailed(view.state));
  return bad ? 'error' : views.every(view => view.state === 'FINISHED') ? 'success' : 'info';
}

export const toasts: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:toasts',
  description: 'Tells when a job ends.',
  autoStart: true,
  requires: [IEdt],
  optional: [ISettingRegistry],
  activate: (app: JupyterFrontEnd, edt: IEdt, registry: ISettingRegistry | null) => {
    let wanted = true;
    void registry?.load(PLUGIN).then(settings => {
      const apply = (): void => {
        wanted = settings.get('tellEnds').composite as boolean;
      };
      settings.changed.connect(apply);
      apply();
    });
    const ends = new Ends(app.commands);
    edt.jobs.ended.connect((_, view) => {
      if (wanted) {
        ends.add(view);
      }
    });
    edt.jobs.looked.connect((_, id) => ends.seen(id));
  }
};
