/** What the server tells of one job beside the job itself, as `openapi.yaml` has it. Times are seconds since the epoch. */

import type { IReason } from '../views';

export interface ILogLine {
  time: number;
  stream: string;
  worker: number | null;
  err: boolean;
  text: string;
}

export interface ILogPage {
  lines: ILogLine[];
  /** The cursor behind the last line. */
  next: string;
  /** The job has ended and these were its last lines. */
  done: boolean;
}

export interface IWhatIf {
  job: string;
  priority: number;
  max_workers: number;
  instance_group: string;
  shares: { job: string; name: string; now: number; then: number }[];
  ends_now: number | null;
  ends_then: number | null;
  reason: IReason | null;
}
