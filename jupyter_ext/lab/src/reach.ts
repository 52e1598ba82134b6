/** Whether the server answers, and what it refuses to tell: kept from every answer and failure. Pure but for the clock. */
import { ApiError, LOGGED_OUT, sentenceOf } from './api';

/**
 * Whether the server answers; `seen` is when it last did (seconds since the epoch, 0 for never). Where not, `error` is what
 * went wrong and `says` its sentence: no answer, no login any more, or it will not tell.
 */
export interface IReach {
  ok: boolean;
  seen: number;
  says: string;
  error: unknown;
}

/** What is asked for beside single jobs, and may be refused for itself. */
export type Question = 'list' | 'machine';

export class Reach {
  private reached: IReach = { ok: true, seen: 0, says: '', error: null };
  /** What the server will not tell, such as to somebody who may not see jobs. */
  private readonly refused = new Map<Question, unknown>();

  get now(): IReach {
    // Which answer comes first is chance; a list that is refused says more.
    const refused = this.refused.get('list') ?? this.refused.get('machine');
    return this.reached.ok && refused !== undefined
      ? { ok: false, seen: this.reached.seen, says: sentenceOf(refused), error: refused }
      : this.reached;
  }

  /** There was an answer; true when it is the first one after a time without. */
  answered(question?: Question): boolean {
    const back = !this.now.ok;
    this.reached = { ok: true, seen: Date.now() / 1000, says: '', error: null };
    if (question !== undefined) {
      this.refused.delete(question);
    }
    return back;
  }

  /** What was thrown; true when it was an answer, a refusal, and the first one after a time without. */
  failed(error: unknown, question?: Question): boolean {
    if (!(error instanceof ApiError) || error.unreachable || error.code === LOGGED_OUT) {
      this.reached = { ok: false, seen: this.reached.seen, says: sentenceOf(error), error };
      return false;
    }
    const back = this.answered();
    if (question !== undefined) {
      this.refused.set(question, error);
    }
    return back;
  }
}
