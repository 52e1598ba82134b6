/**
 * A question that is asked again and again while somebody looks: its newest answer, how old that is, and what went wrong
 * since. An answer stays when the next one fails.
 */

import { useCallback, useEffect, useRef, useState } from 'react';

import { useShown } from './shown';

const SLOWEST = 30;

/** The state of a question. */
export interface Polled<T> {
  /** The newest answer, null before the first. */
  readonly value: T | null;
  /** Why there is no newer one; null while all is well. */
  readonly error: unknown;
  /** When the newest answer came, seconds since the epoch; 0 before the first. */
  readonly taken: number;
  /** Ask at once. */
  readonly again: () => void;
  /** Take this for the newest answer, such as what a change returned. */
  readonly tell: (value: T) => void;
}

interface State<T> {
  key: string;
  value: T | null;
  error: unknown;
  taken: number;
  /** It was the answer to a question that is asked once. */
  last: boolean;
}

/**
 * @param key - what the question is about: with another one it is another question, and the old answer is forgotten.
 * @param ask - asks it; the newest function given is called.
 * @param seconds - between an answer and the next question; null to ask once. After a failure twice as long each time.
 */
export function usePolled<T>(
  key: string,
  ask: () => Promise<T>,
  seconds: number | null
): Polled<T> {
  const shown = useShown();
  const nothing: State<T> = { key, value: null, error: null, taken: 0, last: false };
  const [state, setState] = useState<State<T>>(nothing);
  const [round, setRound] = useState(0);
  const newest = useRef(ask);
  newest.current = ask;
  // What was asked again and again is asked once more when that is over: it has changed since.
  const settled = seconds === null && state.key === key && state.last;

  useEffect(() => {
    if (!shown || (settled && round === 0)) {
      return;
    }
    let over = false;
    let timer = 0;
    let failures = 0;
    const turn = async (): Promise<void> => {
      try {
        const value = await newest.current();
        failures = 0;
        if (!over) {
          setState({ key, value, error: null, taken: Date.now() / 1000, last: seconds === null });
        }
      } catch (error) {
        failures += 1;
        if (!over) {
          setState(old => (old.key === key ? { ...old, error } : { ...nothing, error }));
        }
      }
      if (!over && (seconds !== null || failures > 0)) {
        const pause = Math.min(SLOWEST, (seconds ?? 2) * 2 ** Math.min(failures, 6));
        timer = window.setTimeout(() => void turn(), 1000 * (failures > 0 ? pause : (seconds ?? pause)));
      }
    };
    void turn();
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
    // `settled` is left out on purpose: the answer that settles it must not end the round that brought it.
  }, [key, shown, round, seconds]);

  const again = useCallback(() => setRound(old => old + 1), []);
  const failing = state.key === key && state.error !== null;
  useEffect(() => {
    if (!failing) {
      return;
    }
    // Somebody comes back to this page, perhaps from logging in.
    window.addEventListener('focus', again);
    return () => window.removeEventListener('focus', again);
  }, [failing, again]);
  const tell = useCallback(
    (value: T) => {
      setState({ key, value, error: null, taken: Date.now() / 1000, last: false });
      setRound(old => old + 1);
    },
    [key]
  );
  const { value, error, taken } = state.key === key ? state : nothing;
  return { value, error, taken, again, tell };
}
