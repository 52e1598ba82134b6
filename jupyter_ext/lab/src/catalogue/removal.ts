/** Deleting something of the catalogue: asked first, with what it comes to; what is refused is kept to be shown. */

import { labDialogs } from '../actions/lab_dialogs';
import type { Query } from '../api';
import { useAction } from '../page/action';
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
  const { failed, act } = useAction(after);
  const remove = async ({ name, comesTo, path, query = {} }: Removed): Promise<void> => {
    if (await labDialogs.agreed(`Delete ${name}?`, comesTo, 'Delete', true)) {
      await act(() => api.request(path, query, 'DELETE'));
    }
  };
  return { failed, remove: what => void remove(what) };
}
