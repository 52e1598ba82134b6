/** How a state looks: icon, word and colour, of which each alone would do. The same as in Python's cards. */
import type { JobState } from './views';

export interface ILook {
  icon: string;
  word: string;
  /** Names the class `jp-edt-is-<tone>`, which has the colour. */
  tone: 'quiet' | 'wait' | 'go' | 'good' | 'bad';
}

export const LOOKS: Record<JobState, ILook> = {
  SUBMITTED: { icon: '○', word: 'submitted', tone: 'quiet' },
  PENDING: { icon: '◔', word: 'waiting', tone: 'wait' },
  LAUNCHING: { icon: '◔', word: 'launching', tone: 'go' },
  RUNNING: { icon: '▶', word: 'running', tone: 'go' },
  RECOVERING: { icon: '↻', word: 'recovering', tone: 'wait' },
  SUSPENDED: { icon: '⏸', word: 'suspended', tone: 'quiet' },
  FINISHED: { icon: '✔', word: 'finished', tone: 'good' },
  KILLED: { icon: '■', word: 'stopped', tone: 'quiet' },
  FAILED: { icon: '✘', word: 'failed', tone: 'bad' },
  ERROR: { icon: '✘', word: 'error', tone: 'bad' }
};

/** U+FE0E: the icon as a character, never as a coloured picture. */
export function iconOf(state: JobState): string {
  return `${LOOKS[state].icon}\uFE0E`;
}
