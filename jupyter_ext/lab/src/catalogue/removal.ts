/** Deleting something of the catalogue: asked first, with what it comes to; what is refused is kept to be shown. */

import { useState } from 'react';

import { labDialogs } from '../actions/lab_dialogs';
import type { Query } from '../api';
import { useEdt } from '../page/surroundings';

/** What is to go. */
export interface Removed {
  /** As the question names it: "night", "the instance group night". */
  readonly name: string;
  readonly comesTo: string;
  readonly path: string;
  readonly query?: Query;
}

/** `failed` is what was thrown by the last one, null for nothing; `after` is called when something may have gone. */
export function useRemoval(after: () => void): { failed: unknown; remove: (what: Removed) => void } {
  const { api } = useEdt();
  const [failed, setFailed] = useState<unknown>(null);
  const remove = async ({ name, comesTo, path, query = {} }: Removed): Promise<void> => {
    setFailed(null);
    if (!(await labDialogs.agreed(`Delete ${name}?`, comesTo, 'Delete', true))) {
      return;
    }
    try {
      await api.request(path, query, 'DELETE');
    } catch (error) {
      setFailed(error);
    }
    after();
  };
  return { failed, remove: what => void remove(what) };
}
