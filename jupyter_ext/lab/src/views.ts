/** The server's answers by the names that the pages use; `schemas.ts` is generated. Times are seconds since the epoch. */

import { type IClusterJob, type IJobView, type ISearchView as IGenerated, type JobState, JobStates, type SearchState } from './schemas';

export type { ICheckpoint, ICluster, IClusterJob, ICurve, IGroupState, IInfo, IJobPage, IJobPatch, IJobView, IReason, IWorker, JobState } from './schemas';
export type { IClusterSlot as ISlot, IEvent as IJobEvent, IJobProgress as IProgress } from './schemas';

export type { ITrialView, SearchState, TrialState } from './schemas';

/** A search, with what the pages read of its settings. */
export interface ISearchView extends Omit<IGenerated, 'spec'> {
  spec: { job: { name: string }; metric: string; trials: number };
}

export const STATES: readonly JobState[] = JobStates;

/** The `framework` of a job that the elastic engine trains. */
export const ELASTIC = 'edtPyTorch';

const FINAL: ReadonlySet<string> = new Set<JobState | SearchState>(['FINISHED', 'KILLED', 'FAILED', 'ERROR', 'STOPPED']);

/** True when the job has ended without what it was to do. */
export function hasFailed(state: JobState): boolean {
  return state === 'FAILED' || state === 'ERROR';
}

/** True when the job or the search has ended. */
export function isFinal(state: JobState | SearchState): boolean {
  return FINAL.has(state);
}

/** The jobs with the trials of each search as one, which shares slots as one. Pure. */
export function folded(jobs: readonly IClusterJob[]): IClusterJob[] {
  const rows = new Map<string, IClusterJob>();
  for (const job of jobs) {
    const id = job.search || job.id;
    const row = rows.get(id);
    rows.set(id, row ? { ...row, held: row.held + job.held, asked: row.asked + job.asked } : job);
  }
  return [...rows.values()];
}

/** A job, or a search, as last seen, `taken` seconds since the epoch; `gone` when the server says that there is none. */
export interface IKnown<View = IJobView> {
  view: View | undefined;
  taken: number;
  gone: boolean;
  trouble: string;
}

/** What the server broadcasts when a job changes its state. */
export interface IStateEvent {
  job: string;
  name?: string;
  owner: string;
  /** Id of the search that it is a trial of. */
  search?: string;
  state: JobState;
  before?: JobState | null;
  time: number;
}
