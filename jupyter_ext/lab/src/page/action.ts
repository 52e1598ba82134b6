/** Something that a button does: what it throws is kept to be shown, until the next one begins. */

import { useState } from 'react';

/** What a button does. */
export type Action = () => Promise<unknown>;

/** `failed` is what was thrown by the last action, null for nothing; `after` is called when one has ended. */
export function useAction(after: () => void): { failed: unknown; act: (action: Action) => Promise<void> } {
  const [failed, setFailed] = useState<unknown>(null);
  const act = async (action: Action): Promise<void> => {
    setFailed(null);
    try {
      await action();
    } catch (error) {
      setFailed(error);
    }
    after();
  };
  return { failed, act };
}
