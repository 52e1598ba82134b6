/** How a card stands to the server: live, old, of what was deleted, or of another server's. Pure. */
import { type IJobView, type IKnown, type JobState, type SearchState, isFinal } from '../views';
import type { IReach } from '../reach';
import { clock } from '../words';
import { type IBundle, isElsewhere } from './bundle';

export interface IStanding<View = IJobView> {
  kind: 'live' | 'asking' | 'old' | 'deleted' | 'elsewhere';
  /** What there is to show; null when even the notebook does not say. */
  view: View | null;
  /** How old it is and, unless it is live, why and what to do. */
  says: string;
  /** What went wrong, where that is the reason; null else. */
  error?: unknown;
}

/** `base` is the address of the server this page is from; `what` it is a card of, for its sentences. */
export function standingOf<View extends { state: JobState | SearchState; ended: number | null }>(
  bundle: IBundle<View>,
  known: IKnown<View> | undefined,
  reach: Pick<IReach, 'ok' | 'says' | 'error'>,
  base: string,
  what = 'job'
): IStanding<View> {
  const view = known?.view ?? bundle.view;
  const taken = known?.view ? known.taken : bundle.taken;
  const then = taken ? clock(taken) : 'a time it does not tell';
  if (!known) {
    return { kind: 'asking', view, says: `as of ${then}, asking the server …` };
  }
  if (known.gone) {
    if (isElsewhere(bundle.origin, base)) {
      const says = `This ${what} is on another server, ${bundle.origin}: open it there. It was like this at ${then}.`;
      return { kind: 'elsewhere', view, says };
    }
    return { kind: 'deleted', view, says: `This ${what} was deleted from the server. It was like this at ${then}.` };
  }
  if (known.trouble || !reach.ok) {
    return { kind: 'old', view, says: `last seen ${then}. ${known.trouble || reach.says}`, error: reach.error };
  }
  const over = view !== null && isFinal(view.state);
  return { kind: 'live', view, says: over ? (view.ended === null ? '' : `ended ${clock(view.ended)}`) : `live, ${then}` };
}
