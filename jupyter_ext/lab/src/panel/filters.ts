/** Which jobs of a list are shown: by groups of states and by a search. Pure. */
import type { Scope } from '../jobs';
import { LOOKS } from '../looks';
import type { IJobView, JobState } from '../views';

export interface IChip {
  name: string;
  label: string;
  states: readonly JobState[];
}

export const CHIPS: readonly IChip[] = [
  { name: 'running', label: 'Running', states: ['LAUNCHING', 'RUNNING', 'RECOVERING'] },
  { name: 'waiting', label: 'Waiting', states: ['SUBMITTED', 'PENDING'] },
  { name: 'suspended', label: 'Suspended', states: ['SUSPENDED'] },
  { name: 'finished', label: 'Finished', states: ['FINISHED'] },
  { name: 'stopped', label: 'Stopped', states: ['KILLED'] },
  { name: 'failed', label: 'Failed', states: ['FAILED', 'ERROR'] }
];

/** Which jobs the panel shows: whose, of the chosen chips (none means all), and found by these words. */
export interface IChoice {
  scope: Scope;
  chips: ReadonlySet<string>;
  search: string;
}

export const ALL_OF_MINE: IChoice = { scope: 'mine', chips: new Set(), search: '' };

/** The chips that stand for these states. */
export function chipsOf(states: readonly JobState[]): string[] {
  return CHIPS.filter(chip => chip.states.some(state => states.includes(state))).map(chip => chip.name);
}

/** How many jobs each chip stands for. */
export function counts(jobs: readonly IJobView[]): Record<string, number> {
  const byState = new Map<JobState, number>();
  for (const view of jobs) {
    byState.set(view.state, (byState.get(view.state) ?? 0) + 1);
  }
  return Object.fromEntries(
    CHIPS.map(chip => [chip.name, chip.states.reduce((sum, state) => sum + (byState.get(state) ?? 0), 0)])
  );
}

/** The jobs of the chosen chips (none means all) in whose name, id, owner, group, state, labels or notes each word of `search` is. */
export function chosen(jobs: readonly IJobView[], chips: ReadonlySet<string>, search: string): IJobView[] {
  const states = new Set(CHIPS.filter(chip => chips.has(chip.name)).flatMap(chip => chip.states));
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return jobs.filter(view => {
    if (states.size && !states.has(view.state)) {
      return false;
    }
    // A card that an older server has made has no labels and no notes.
    const stated = [view.state, LOOKS[view.state].word];
    const labels = [...(view.tags ?? []), view.project ?? '', view.experiment ?? '', view.notes ?? ''];
    const own = [view.name, view.id, view.owner, view.instance_group, ...stated, ...labels];
    const text = own.join(' ').toLowerCase();
    return words.every(word => text.includes(word));
  });
}
