/** The pictures of a search as tabs, which its card and its page have in common. */

import type { Tab } from '../page/tabs';
import type { ISearchView } from '../views';

import { ParallelTrials } from './parallel';
import { SearchPicture } from './parts';

/** The hyper-parameters of all trials, the comparisons of a search that has any before the end, and the slots held. */
export function pictureTabs(view: ISearchView): Tab[] {
  const tab = (key: string, label: string): Tab => ({ key, label, content: () => <SearchPicture view={view} name={key} /> });
  const compares = (view.budgets ?? []).length > 1;
  const parallel = { key: 'parallel', label: 'Parallel', content: () => <ParallelTrials view={view} /> };
  return [parallel, ...(compares ? [tab('rungs', 'Rungs')] : []), tab('slots', 'Slots')];
}
