/** What every component of a page may use: the server, what is known of its jobs, and the application's commands. */

import { createContext, useContext } from 'react';

import type { Commands } from '../commands';
import type { IEdt } from '../tokens';

/** The surroundings of a page. */
export interface Surroundings extends IEdt {
  readonly commands: Commands;
}

/** Set by the plugin that makes the page. */
export const EdtContext = createContext<Surroundings | null>(null);

/** The surroundings of the page around. */
export function useEdt(): Surroundings {
  const found = useContext(EdtContext);
  if (found === null) {
    throw new Error('A component of a page is used outside of one.');
  }
  return found;
}
