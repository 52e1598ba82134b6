/** The machine as all pages see it. */

import { useEffect, useState } from 'react';

import type { ICluster } from '../views';

import { useShown } from './shown';
import { useEdt } from './surroundings';

/** The machine as last seen, followed while somebody looks. */
export function useCluster(): ICluster | undefined {
  const { jobs } = useEdt();
  const shown = useShown();
  const [, redraw] = useState(0);
  useEffect(() => {
    const onChanged = (_: unknown, id: string | null): void => {
      if (id === null) {
        redraw(old => old + 1);
      }
    };
    jobs.changed.connect(onChanged);
    return () => {
      jobs.changed.disconnect(onChanged);
    };
  }, [jobs]);
  useEffect(() => {
    if (!shown) {
      return;
    }
    const watch = jobs.watchCluster();
    return () => watch.dispose();
  }, [jobs, shown]);
  return jobs.cluster;
}
