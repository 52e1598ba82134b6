/** The server's requests and answers. Generated from the OpenAPI description by `make types`; do not edit. */

/** What the edge has counted of a target since it began, and its state now. */
export interface ICounters {
  requests?: Record<string, number>;
  rows?: number;
  batches?: number;
  busy?: number;
  latency?: Record<string, number>;
  latency_sum?: number;
  queued?: number;
  waited?: number;
  replicas?: number;
  working?: number;
}

/** A key as it is listed. */
export interface IDeploymentKey {
  /** The part of it that is no secret. */
  id: string;
  /** Who it is for. */
  name: string;
  /** Seconds since the epoch (UTC). */
  created: number;
  /** Likewise, null for never. */
  expires: number | null;
  /** The key itself, only in the answer that makes it. It is kept nowhere. */
  key: string;
}

export const DeploymentStates = ['FAILED', 'IDLE', 'READY', 'STARTING', 'STOPPED', 'WAITING'] as const;
export type DeploymentState = (typeof DeploymentStates)[number];

/** A deployment as it is now. */
export interface IDeploymentView {
  name: string;
  owner: string;
  /** Seconds since the epoch (UTC). */
  created: number;
  /** What it does with a request. */
  state: DeploymentState;
  /** A sentence on that, with what it waits for. Empty when it is ready. */
  message: string;
  /** That answers most callers, or would when it is started. */
  version: string;
  /** Where it is called with a key, empty while nothing takes requests. Through Jupyter Server and its login it is called at `edt/api/deployments/<name>/predict`. */
  url: string;
  instance_group: string;
  replicas: [number, number];
  priority: number;
  description: string;
  space: string;
  public: boolean;
  origins: string[];
  release_after: number;
  idle_after: number;
  /** Replicas that its load needs. */
  wanted: number;
  /** That it holds. */
  slots: number;
  /** Replicas that answer. */
  ready: number;
  keys: IDeploymentKey[];
  /** What has been counted of the revisions that answer now, by number, since they do. */
  counters: Record<string, ICounters>;
  /** All, the newest first. */
  revisions: IRevision[];
}

/** An experiment of a project. */
export interface IExperimentView {
  name: string;
  /** Number of its jobs. */
  runs: number;
  /** When one of them last changed its state, seconds since the epoch. */
  changed: number;
}

/** A version, with what it came from. */
export interface IModelVersion {
  name: string;
  /** From 1 within its name, never used twice. */
  number: number;
  owner: string;
  /** What else it is called, sorted. */
  aliases: string[];
  description: string;
  tags: string[];
  /** Seconds since the epoch (UTC). */
  created: number;
  /** The job that trained it, which may have been deleted since. Empty for one made of a folder. */
  job: string;
  /** The job that trained it, which may have been deleted since. Empty for one made of a folder. */
  job_name: string;
  /** Id of the search that the job is a trial of. Empty for none. */
  search: string;
  /** After which epoch, null for the end of the training. */
  epoch: number | null;
  /** Of the file of its weights, empty for one made of a folder. */
  sha256: string;
  /** Of the names and contents of its code's files. */
  code_sha256: string;
  /** Bytes of the weights. */
  size: number;
  /** Test_loss, test_accuracy and the script's own metrics of the last validation up to its epoch. */
  metrics: Record<string, number | null>;
  framework: string;
  main: string;
  /** Settings of the training that its bits depend on. */
  args: string[];
  /** Settings of the training that its bits depend on. */
  dataset: string;
  /** Settings of the training that its bits depend on. */
  seed: number;
  /** Settings of the training that its bits depend on. */
  mode: string;
  /** Settings of the training that its bits depend on. */
  threads_per_slot: number;
  /** Settings of the training that its bits depend on. */
  shards: number | null;
  /** Versions of python and torch, as far as they are known. */
  software: Record<string, string>;
  /** One sentence when its weights are not on disk as they were. Empty when all is well. */
  trouble: string;
}

/** A project of the user, with all its jobs. */
export interface IProjectView {
  name: string;
  /** Number of its jobs, with those that are in no experiment. */
  runs: number;
  /** When one of them last changed its state, seconds since the epoch. */
  changed: number;
  /** Those that have jobs, the one that changed last first. */
  experiments: IExperimentView[];
}

/** A version that a deployment has served, serves, or is about to serve. */
export interface IRevision {
  number: number;
  version: string;
  job: string;
  created: number;
  by: string;
  share: number;
  outcome: string;
  max_batch: number;
  exact: boolean;
  deadline: number;
}

/** A column of the table of runs. */
export interface IRunColumn {
  /** Its key in the rows. An argument named like a setting or a metric has its dashes: --seed. */
  name: string;
  /** Job for what the server knows of it, argument for a word of the command line or a value of a trial, metric for one of the last validation. */
  kind: 'job' | 'argument' | 'metric';
  /** Maximize or minimize where the name of a metric says what is better. */
  direction: '' | 'maximize' | 'minimize';
}

/** The runs of a project or of one of its experiments. */
export interface IRunTable {
  /** Its name. */
  project: string;
  /** Its name, empty for the whole project. */
  experiment: string;
  /** Those with a value in any row, in the order in which people read them. */
  columns: IRunColumn[];
  /** The columns with one value in all rows, and that value. Empty for a single run. */
  same: Record<string, unknown>;
  /** The values of each run by the name of their column. What a run has not is left out. `started` is in seconds since the epoch and `duration` in seconds. */
  rows: Record<string, unknown>[];
  /** Number of runs, of which the rows may be a part. */
  total: number;
}
