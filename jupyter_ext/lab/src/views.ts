/** What the server tells of jobs and of the machine, as `openapi.yaml` has it. Times are seconds since the epoch. */

export type JobState =
  | 'SUBMITTED'
  | 'PENDING'
  | 'LAUNCHING'
  | 'RUNNING'
  | 'RECOVERING'
  | 'SUSPENDED'
  | 'FINISHED'
  | 'KILLED'
  | 'FAILED'
  | 'ERROR';

export const STATES: readonly JobState[] = [
  'SUBMITTED',
  'PENDING',
  'LAUNCHING',
  'RUNNING',
  'RECOVERING',
  'SUSPENDED',
  'FINISHED',
  'KILLED',
  'FAILED',
  'ERROR'
];

/** What `framework` says of a job that the elastic engine trains. */
export const ELASTIC = 'edtPyTorch';

const FINAL: ReadonlySet<JobState> = new Set<JobState>(['FINISHED', 'KILLED', 'FAILED', 'ERROR']);

/** True when the job has ended. */
export function isFinal(state: JobState): boolean {
  return FINAL.has(state);
}

/** Why a job does not hold what it asked for; `held`, `entitled` and `asked` are slots. */
export interface IReason {
  code: string;
  text: string;
  held: number;
  entitled: number;
  asked: number;
  numbers: Record<string, unknown>;
}

/** How far a training is; updates and epochs count from 0, losses are means over samples. */
export interface IProgress {
  update: number;
  total_updates: number;
  epoch: number;
  epochs: number;
  loss: number | null;
  accuracy: number | null;
  test_loss: number | null;
  test_accuracy: number | null;
  samples_per_second: number | null;
  /** Absent in cards that an older server has made. */
  not_a_number?: boolean;
}

/** A job as the server shows it. */
export interface IJobView {
  id: string;
  name: string;
  owner: string;
  state: JobState;
  state_since: number;
  created: number;
  started: number | null;
  ended: number | null;
  priority: number;
  max_workers: number;
  min_workers: number;
  slots_per_unit: number;
  pending_timeout: number | null;
  instance_group: string;
  mode: string;
  seed: number;
  main: string;
  args: string[];
  slots: number;
  shards: number | null;
  progress: IProgress | null;
  reason: IReason | null;
  message: string;
  result_dir: string;
  warm_start: string;
  framework: string;
  /** Names of the catalogue: what it reads, and what it is a training of; "" for none. */
  dataset: string;
  model: string;
  /** Id of the job whose training it validates; missing or "" for a job that trains. */
  validates?: string;
}

/** A job as last seen, `taken` seconds since the epoch; `gone` when the server says that there is no such job. */
export interface IKnown {
  view: IJobView | undefined;
  taken: number;
  gone: boolean;
  trouble: string;
}

/** What may change while a job lives. */
export interface IJobPatch {
  priority?: number;
  max_workers?: number;
  instance_group?: string;
}

/** A page of jobs, newest first; `next` is there when there are more. */
export interface IJobPage {
  jobs: IJobView[];
  next?: string;
}

/** One unit of allocation; `device` is "cpu" or "cuda:<index>", `job` the id of the job in it. */
export interface ISlot {
  id: number;
  host: string;
  device: string;
  resource_group: string | null;
  job: string | null;
}

/** A job that has not ended, as the machine sees it; `reason` is empty for the jobs of others. */
export interface IClusterJob {
  id: string;
  name: string;
  owner: string;
  group: string;
  priority: number;
  held: number;
  leaving: number;
  entitled: number;
  asked: number;
  reason: string;
}

/** What an instance group has now; counts are slots. */
export interface IGroupState {
  name: string;
  resource_group: string;
  parent: string;
  policy: string;
  slots: number;
  jobs: number;
  waiting: string[];
  held: number;
  entitled: number;
  own: number;
  borrowed: number;
  lenders: Record<string, number>;
  lent: number;
  borrowers: Record<string, number>;
}

/** The machine: slots, queues, jobs in order of arrival. */
export interface ICluster {
  slots: ISlot[];
  resource_groups: { name: string; slots: number; free: number }[];
  groups: IGroupState[];
  jobs: IClusterJob[];
  threads_per_slot: number;
  elsewhere: { device: string; data_dir: string }[];
}

/** Something that happened to a job. */
export interface IJobEvent {
  seq: number;
  time: number;
  job: string | null;
  kind: string;
  data: Record<string, unknown>;
  cause: number | null;
  text: string;
}

/** What a job can go on from; `kind` is "weights" of an epoch or "exact" at an update. */
export interface ICheckpoint {
  name: string;
  epoch: number | null;
  bytes: number;
  time: number;
  kind: 'weights' | 'exact';
  update: number | null;
  training: number | null;
}

/** A running worker; `rank` is null until it has joined. */
export interface IWorker {
  worker: number;
  slot: number;
  host: string;
  pid: number;
  rank: number | null;
  generation: number | null;
}

/** Which server answers, and who it takes the caller for. */
export interface IInfo {
  name: string;
  version: string;
  max_upload_bytes: number;
  python: string;
  user: string;
  instance_groups: string[];
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
