/** Whether anybody can see the page around a component: what nobody sees is not asked for. */

import { createContext, useContext } from 'react';

/** Set by the page. */
export const Shown = createContext<boolean>(true);

/** True while the page around is in view, and the browser's tab too. */
export function useShown(): boolean {
  return useContext(Shown);
}
