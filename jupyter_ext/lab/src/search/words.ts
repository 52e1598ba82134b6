/** A search in words, as Python's cards have them. Pure. */
import { type ISearchView, type ITrialView, type JobState, type SearchState, type TrialState, isFinal } from '../views';
import { count, grouped, lossFigure } from '../words';

/** The state of a job that looks the same, and the word. */
export const SEARCH_LOOKS: Record<SearchState, [JobState, string]> = {
  CREATED: ['SUBMITTED', 'submitted'],
  RUNNING: ['RUNNING', 'running'],
  PAUSED: ['SUSPENDED', 'paused'],
  FINISHED: ['FINISHED', 'finished'],
  STOPPED: ['KILLED', 'stopped'],
  FAILED: ['FAILED', 'failed']
};

export const TRIAL_LOOKS: Record<TrialState, [JobState, string]> = {
  WAITING: ['PENDING', 'waiting'],
  RUNNING: ['RUNNING', 'running'],
  HELD: ['SUSPENDED', 'held'],
  FINISHED: ['FINISHED', 'finished'],
  PRUNED: ['KILLED', 'ended early'],
  FAILED: ['FAILED', 'failed'],
  STOPPED: ['KILLED', 'stopped']
};

/** `37 of 81 trials · rung 2 of 4 · best 0.9871 (trial 17) · 6 of 8 slots` */
export function headline(view: ISearchView): string {
  const over = (['FINISHED', 'PRUNED', 'FAILED', 'STOPPED'] as const).reduce((sum, state) => sum + (view.counts[state] ?? 0), 0);
  const budgets = view.budgets ?? [];
  const reached = Math.max(0, ...view.rungs.map(rung => budgets.indexOf(rung.budget) + 1));
  const parts = [`${grouped(over)} of ${count(view.expected, 'trial')}`];
  if (budgets.length > 1 && reached > 0) {
    parts.push(`rung ${reached} of ${budgets.length}`);
  }
  if (view.best !== null) {
    parts.push(`best ${lossFigure(view.best.value)} (trial ${view.best.number})`);
  }
  if (!isFinal(view.state)) {
    parts.push(`${view.slots ?? 0} of ${count(view.usable_slots ?? 0, 'slot')}`);
  }
  return parts.join(' · ');
}

/** `lr=0.01, width=64` */
export function valuesWords(trial: ITrialView): string {
  return Object.entries(trial.params)
    .map(([name, value]) => `${name}=${typeof value === 'number' ? lossFigure(value) : String(value)}`)
    .join(', ');
}

/** What can be done with a search of mine: the last part of the route, and what is written on the button. */
export function verbs(view: ISearchView): ['pause' | 'resume' | 'stop', string][] {
  if (view.state === 'PAUSED') {
    return [
      ['resume', 'Resume'],
      ['stop', 'Stop']
    ];
  }
  if (view.state === 'STOPPED') {
    return [['resume', 'Resume']];
  }
  return isFinal(view.state)
    ? []
    : [
        ['pause', 'Pause'],
        ['stop', 'Stop']
      ];
}
