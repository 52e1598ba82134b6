/**
 * The upload of a data set from this machine, one at a time. It belongs to no page: it goes on while another tab is looked
 * at, and a form that is opened meanwhile, or after it has failed with nobody looking, follows it as the one that began it.
 */
import { type ISignal, Signal } from '@lumino/signaling';

import type { Api } from '../api';
import { WrongAnswer } from '../page/form';
import type { Answers } from '../page/form';
import { send } from '../sending';
import { bytes } from '../words';

import type { Chosen } from './chosen_files';
import { tar } from './tar';

/** What a form has asked for. */
export interface Asked {
  readonly answers: Answers;
  /** The body of `POST /datasets`, but for the files. */
  readonly spec: Readonly<Record<string, unknown>>;
  readonly chosen: Chosen;
}

/** An upload: bytes sent and to send, and how it ends, true when the data set is there, false when it was stopped. */
export interface Underway extends Asked {
  readonly sent: number;
  readonly total: number;
  readonly done: Promise<boolean>;
}

/** How an upload of this name ended: null for well. */
export interface Ended {
  readonly name: string;
  readonly error: unknown;
}

export class Uploads {
  private now: Underway | null = null;
  private watching = 0;
  private stopping: AbortController | null = null;
  private readonly changes = new Signal<this, void>(this);
  private readonly unseen = new Signal<this, Ended>(this);

  constructor(private readonly api: Api) {}

  /** The one that is under way, or has failed and was not told to anybody; null for none. */
  get current(): Underway | null {
    return this.now;
  }

  /** It is further, begun or over. */
  get changed(): ISignal<this, void> {
    return this.changes;
  }

  /** One has ended, well or not, while nobody looked. */
  get endedUnseen(): ISignal<this, Ended> {
    return this.unseen;
  }

  /** Somebody looks, until what is returned is called. */
  watch(): () => void {
    this.watching += 1;
    return () => {
      this.watching -= 1;
    };
  }

  /** Begin one; WrongAnswer while there is another. */
  begin(asked: Asked): Promise<boolean> {
    if (this.stopping !== null) {
      throw new WrongAnswer('files', 'Another upload is under way: wait for its end, or cancel it.');
    }
    const controller = new AbortController();
    this.stopping = controller;
    window.addEventListener('beforeunload', ask);
    const done = this.run(asked, controller.signal);
    this.set({ ...asked, sent: 0, total: 0, done });
    return done;
  }

  stop(): void {
    this.stopping?.abort();
  }

  /** Its failure was told. */
  forget(): void {
    if (this.stopping === null) {
      this.set(null);
    }
  }

  private async run(asked: Asked, signal: AbortSignal): Promise<boolean> {
    const name = String(asked.spec['name']);
    try {
      await this.send(asked, signal);
      this.over(null);
      this.tell({ name, error: null });
      return true;
    } catch (error) {
      if (signal.aborted) {
        this.over(null);
        return false;
      }
      this.over(this.now);
      this.tell({ name, error });
      throw error;
    }
  }

  private async send({ spec, chosen }: Asked, signal: AbortSignal): Promise<void> {
    const { max_upload_bytes: most } = await this.api.info();
    const [file, name] = packed(chosen);
    if (file.size > most) {
      throw new WrongAnswer(
        'files',
        `That is ${bytes(file.size)}, and this server takes ${bytes(most)} at once. ` +
          "Put it into the server's data folder and register it there, or ask for a larger c.EdtApp.max_upload_bytes."
      );
    }
    const form = new FormData();
    form.append('spec', JSON.stringify(spec));
    form.append('package', file, name);
    signal.throwIfAborted();
    this.further(0, file.size);
    await send(this.api, 'datasets', form, (sent, total) => this.further(sent, total), signal);
  }

  private further(sent: number, total: number): void {
    if (this.now !== null) {
      this.set({ ...this.now, sent, total });
    }
  }

  private over(left: Underway | null): void {
    this.stopping = null;
    window.removeEventListener('beforeunload', ask);
    this.set(left);
  }

  private tell(ended: Ended): void {
    if (this.watching === 0) {
      this.unseen.emit(ended);
    }
  }

  private set(now: Underway | null): void {
    this.now = now;
    this.changes.emit();
  }
}

/** Whether the browser's tab may be closed: then it would end. */
function ask(event: BeforeUnloadEvent): void {
  event.preventDefault();
}

/** One file as it is, several as an archive. */
function packed(chosen: Chosen): [Blob, string] {
  const [first] = chosen.entries;
  return chosen.entries.length === 1 && first !== undefined && !first.name.includes('/')
    ? [first.file, first.name]
    : [tar(chosen.entries), 'files.tar'];
}
