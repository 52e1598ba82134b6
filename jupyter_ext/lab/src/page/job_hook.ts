/** What is known of one job, followed while a component shows it; and the clock that ages are told by. */

import { useEffect, useState } from 'react';

import type { IKnown } from '../views';

import { useEdt } from './surroundings';
import { useShown } from './shown';

/** The job as last seen, undefined before the first answer. */
export function useJob(id: string): IKnown | undefined {
  const { jobs } = useEdt();
  const shown = useShown();
  const [known, setKnown] = useState<IKnown | undefined>(() => jobs.get(id));
  useEffect(() => {
    const look = (): void => setKnown(jobs.get(id));
    const onChanged = (_: unknown, changed: string | null): void => {
      if (changed === id || changed === null) {
        look();
      }
    };
    jobs.changed.connect(onChanged);
    look();
    return () => {
      jobs.changed.disconnect(onChanged);
    };
  }, [jobs, id]);
  useEffect(() => {
    if (!shown) {
      return;
    }
    const watch = jobs.watchJob(id);
    return () => watch.dispose();
  }, [jobs, id, shown]);
  return known;
}

/** Seconds since the epoch, anew every `seconds` while somebody looks. */
export function useNow(seconds: number): number {
  const shown = useShown();
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    if (!shown) {
      return;
    }
    const tick = (): void => setNow(Date.now() / 1000);
    tick();
    const timer = window.setInterval(tick, 1000 * seconds);
    return () => window.clearInterval(timer);
  }, [seconds, shown]);
  return now;
}
