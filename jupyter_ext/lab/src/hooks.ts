/** Drawn anew when what is known has changed. */
import { useEffect, useReducer } from 'react';

import type { Jobs } from './jobs';

/** Draw again when something about this job (or, without an id, the list, the machine or the server) is known anew. */
export function useJobs(jobs: Jobs, id: string | null = null): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const heard = (_: Jobs, changed: string | null): void => {
      if (id === null || changed === null || changed === id) {
        again();
      }
    };
    jobs.changed.connect(heard);
    return () => {
      jobs.changed.disconnect(heard);
    };
  }, [jobs, id]);
}
