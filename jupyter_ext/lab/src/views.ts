/** The server's answers by the names that the pages use; `schemas.ts` is generated. Times are seconds since the epoch. */

import { type IJobView, type JobState, JobStates } from './schemas';

export type { ICheckpoint, ICluster, IClusterJob, ICurve, IGroupState, IInfo, IJobPage, IJobPatch, IJobView, IReason, IWorker, JobState } from './schemas';
export type { IClusterSlot as ISlot, IEvent as IJobEvent, IJobProgress as IProgress } from './schemas';

export const STATES: readonly JobState[] = JobStates;

/** The `framework` of a job that the elastic engine trains. */
export const ELASTIC = 'edtPyTorch';

const FINAL: ReadonlySet<JobState> = new Set<JobState>(['FINISHED', 'KILLED', 'FAILED', 'ERROR']);

/** True when the job has ended without what it was to do. */
export function hasFailed(state: JobState): boolean {
  return state === 'FAILED' || state === 'ERROR';
}

/** True when the job has ended. */
export function isFinal(state: JobState): boolean {
  return FINAL.has(state);
}

/** A job as last seen, `taken` seconds since the epoch; `gone` when the server says that there is no such job. */
export interface IKnown {
  view: IJobView | undefined;
  taken: number;
  gone: boolean;
  trouble: string;
}

/** What the server broadcasts when a job changes its state. */
export interface IStateEvent {
  job: string;
  name?: string;
  owner: string;
  state: JobState;
  before?: JobState | null;
  time: number;
}
