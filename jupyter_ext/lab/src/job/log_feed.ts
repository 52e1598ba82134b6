/**
 * A job's log as a reader of the log tab sees it: its newest lines, or on demand all of them page by page, and then what is
 * added. A page is asked for when the one before has been taken in, so a fast log never piles up.
 */

import { useCallback, useEffect, useState } from 'react';

import { enc } from '../api';
import { useEdt } from '../page/surroundings';
import { useShown } from '../page/shown';

import type { ILogPage } from './answers';
import { joined, shown } from './log_lines';
import type { ShownLine } from './log_lines';

/** Lines of a page: with the longest lines there are, still megabytes only. */
const PAGE = 5000;
/** Lines to begin with, the newest. */
const NEWEST = 10_000;
const LOOK_AGAIN = 1;
const SLOWEST = 30;

/** What part of the log: `worker` null for all of the stream; `whole` from its beginning on. */
export interface LogChoice {
  readonly stream: 'all' | 'driver' | 'elog' | 'worker';
  readonly worker: number | null;
  readonly whole: boolean;
}

/** The log by now. */
export interface LogFeed {
  readonly lines: readonly ShownLine[];
  /** Lines read so far, also those that are not kept. */
  readonly read: number;
  /** Up to the newest line of now. */
  readonly caughtUp: boolean;
  readonly done: boolean;
  readonly error: unknown;
  readonly taken: number;
  readonly again: () => void;
}

interface State {
  key: string;
  lines: ShownLine[];
  read: number;
  after: string;
  caughtUp: boolean;
  done: boolean;
  error: unknown;
  taken: number;
}

function nothing(key: string): State {
  return { key, lines: [], read: 0, after: '', caughtUp: false, done: false, error: null, taken: 0 };
}

/** The log of a job, read on while its page is in view. */
export function useLog(job: string, choice: LogChoice): LogFeed {
  const { api } = useEdt();
  const visible = useShown();
  const key = `${job} ${choice.stream} ${choice.worker ?? ''} ${choice.whole}`;
  const [kept, setState] = useState<State>(() => nothing(key));
  const [round, setRound] = useState(0);
  const state = kept.key === key ? kept : nothing(key);

  useEffect(() => {
    if (!visible || state.done) {
      return;
    }
    let over = false;
    let now = state;
    let timer = 0;
    let failures = 0;
    const turn = async (): Promise<void> => {
      let pause = LOOK_AGAIN;
      try {
        const first = now.taken === 0 && !choice.whole;
        const page = await api.request<ILogPage>(`jobs/${enc(job)}/logs`, {
          no_track_activity: 1,
          stream: choice.stream,
          ...(choice.worker === null ? {} : { worker: choice.worker }),
          ...(first ? { tail: NEWEST } : { after: now.after, limit: PAGE })
        });
        failures = 0;
        const full = !first && page.lines.length === PAGE;
        now = {
          key,
          lines: taken(now, page),
          read: now.read + page.lines.length,
          after: page.next,
          caughtUp: !full,
          done: page.done,
          error: null,
          taken: Date.now() / 1000
        };
        pause = full ? 0 : LOOK_AGAIN;
      } catch (error) {
        failures += 1;
        pause = Math.min(SLOWEST, LOOK_AGAIN * 2 ** failures);
        now = { ...now, error };
      }
      if (over) {
        return;
      }
      setState(now);
      if (!now.done) {
        timer = window.setTimeout(() => void turn(), 1000 * pause);
      }
    };
    void turn();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
    // `state` is where a round begins, not what it depends on.
  }, [key, visible, round, api, job]);

  const again = useCallback(() => setRound(old => old + 1), []);
  return { ...state, again };
}

function taken(before: State, page: ILogPage): ShownLine[] {
  const more = page.lines.map((line, index) => shown(line, before.read + index + 1));
  return more.length > 0 ? joined(before.lines, more) : before.lines;
}
