/** How a state looks: icon, word and colour, of which each alone would do. The icons mean what they mean in Python's cards. */
import type { HostState } from './schemas';
import type { JobState } from './views';

export interface ILook {
  /** An outline in a field of 16 × 16; drawn, since not every font has these characters. */
  icon: string;
  word: string;
  /** Names the class `jp-edt-is-<tone>`, which has the colour. */
  tone: 'quiet' | 'wait' | 'go' | 'good' | 'bad';
}

const RING = 'M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13zm0 2a4.5 4.5 0 1 1 0 9a4.5 4.5 0 1 1 0-9z';
const CLOCK = `${RING}M7 5h2v2.6l2 1.2-1 1.6-3-1.8z`;
const PLAY = 'M3 1.5l11 6.5-11 6.5z';
const PAUSE = 'M3.5 2h3.2v12h-3.2zM9.3 2h3.2v12h-3.2z';
const AGAIN = 'M8 1.5a6.5 6.5 0 1 0 6.5 6.5h-2.2a4.3 4.3 0 1 1-1.5-3.2l-1.9 1.9h5.6v-5.6l-2.1 2.1a6.5 6.5 0 0 0-4.4-1.7z';
const TICK = 'M1.5 8.6l1.8-1.9 3.2 3 6.4-7.2 1.8 1.7-8 9z';
const SQUARE = 'M3 3h10v10h-10z';
const CROSS = 'M2.2 4l1.8-1.8 4 4 4-4 1.8 1.8-4 4 4 4-1.8 1.8-4-4-4 4-1.8-1.8 4-4z';

export const LOOKS: Record<JobState, ILook> = {
  SUBMITTED: { icon: RING, word: 'submitted', tone: 'quiet' },
  PENDING: { icon: CLOCK, word: 'waiting', tone: 'wait' },
  LAUNCHING: { icon: CLOCK, word: 'launching', tone: 'go' },
  RUNNING: { icon: PLAY, word: 'running', tone: 'go' },
  RECOVERING: { icon: AGAIN, word: 'recovering', tone: 'wait' },
  SUSPENDED: { icon: PAUSE, word: 'suspended', tone: 'quiet' },
  FINISHED: { icon: TICK, word: 'finished', tone: 'good' },
  KILLED: { icon: SQUARE, word: 'stopped', tone: 'quiet' },
  FAILED: { icon: CROSS, word: 'failed', tone: 'bad' },
  ERROR: { icon: CROSS, word: 'error', tone: 'bad' }
};

export const HOST_LOOKS: Record<HostState, ILook> = {
  starting: { icon: CLOCK, word: 'starting', tone: 'go' },
  up: { icon: TICK, word: 'up', tone: 'good' },
  doubtful: { icon: AGAIN, word: 'doubtful', tone: 'wait' },
  draining: { icon: PAUSE, word: 'draining', tone: 'wait' },
  lost: { icon: CROSS, word: 'lost', tone: 'bad' }
};
