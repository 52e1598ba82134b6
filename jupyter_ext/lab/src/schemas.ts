/** The server's requests and answers. Generated from the OpenAPI description by `make types`; do not edit. */

export interface ICheckpoint {
  name: string;
  epoch: number | null;
  bytes: number;
  time: number;
  kind: 'weights' | 'exact';
  /** Updates committed there; null for weights. */
  update: number | null;
  /** Number of the training within the job; null for weights. */
  training: number | null;
}

/** The scores for a class, as fractions. 0 where the divisor is 0. */
export interface IClassScores {
  label: number;
  /** Number of its labels. */
  samples: number;
  precision: number;
  recall: number;
  f1: number;
}

export interface ICluster {
  slots: IClusterSlot[];
  resource_groups: {
    name: string;
    slots: number;
    free: number;
  }[];
  groups: IGroupState[];
  /** Those that have not ended, in order of arrival. */
  jobs: IClusterJob[];
  threads_per_slot: number;
  /** GPUs that jobs of another job store on this machine are in; they are not offered. */
  elsewhere: {
    device: string;
    data_dir: string;
  }[];
  /** Sentences on the server's settings that its admins should read; for other users none. */
  warnings?: string[];
}

export interface IClusterJob {
  id: string;
  name: string;
  owner: string;
  group: string;
  priority: number;
  held: number;
  /** Slots it was asked to give back and has not yet. */
  leaving: number;
  entitled: number;
  asked: number;
  /** Id of the search that it is a trial of; empty for none. */
  search: string;
  /** Its colour in every picture, as #rrggbb. */
  colour: string;
  /** Why it does not hold what it asked for; empty otherwise, and for the jobs of others. */
  reason: string;
}

export interface IClusterSlot {
  id: number;
  host: string;
  /** "cpu" or "cuda:<index>". */
  device: string;
  resource_group: string | null;
  /** The job in it. */
  job: string | null;
  /** The job was asked to give it back, and has not left it yet. */
  leaving: boolean;
}

export interface ICurve {
  /** What x counts: samples or updates from the start of the training, or seconds since the epoch. */
  axis: 'samples' | 'updates' | 'time';
  /** The curve as a sentence. */
  text: string;
  /** The job's own colour in pictures of several jobs, as #rrggbb. */
  colour: string;
  /** One entry an update. */
  train: {
    x: number[];
    /** Mean over the samples of the update; null for a loss that is not a number. */
    loss: (number | null)[];
  };
  /** One entry a validation. */
  test: {
    x: number[];
    /** Mean over the test data; null for a loss that is not a number. */
    loss: (number | null)[];
  };
  /** One entry a change of the number of workers, which holds until the next. */
  workers: {
    x: number[];
    count: number[];
  };
  /** What happened to the training. */
  marks: ({
    /** Where on the x axis. */
    at: number;
    kind: 'failure' | 'shrink' | 'grow' | 'checkpoint';
    text: string;
  })[];
}

/** A registered data set. */
export interface IDataset {
  /** Identifies it where a later entry could have the same `name`. */
  id: string;
  name: string;
  owner: string;
  type: 'Any' | 'CSV' | 'ImageClassification' | 'ObjectDetection' | 'ImageToVector' | 'LMDB' | 'TFRecords' | 'Other';
  description: string;
  /** "reference" (used where it lies) or "copy". */
  mode: 'reference' | 'copy';
  /** The absolute path on the server: the DATA_DIR of a job that uses it. */
  place: string;
  /** The same relative to the server's data folder, "" for a copy. */
  path: string;
  train: string;
  test: string;
  val: string;
  /** Number of files and bytes when it was registered. null when they were not counted. */
  files: number | null;
  /** Number of files and bytes when it was registered. null when they were not counted. */
  size: number | null;
  /** Seconds since the epoch (UTC). */
  created: number;
  /** How many jobs that have not ended use it. */
  jobs: number;
  /** One sentence when it cannot be used now, such as that its folder is gone. "" when all is well. */
  trouble: string;
}

export interface IDatasets {
  datasets: IDataset[];
  types: string[];
  data_folder: string;
}

/** One row of the list. */
export interface IEvent {
  /** Its number in the whole store, growing. */
  seq: number;
  /** Seconds since the epoch. */
  time: number;
  /** The job it belongs to, null for the machine itself. */
  job: string | null;
  /** What happened, such as state or generation. */
  kind: string;
  /** JSON object, by kind. */
  data: Record<string, unknown>;
  /** `seq` of the event that caused it, null for the first of a chain. */
  cause: number | null;
  /** One sentence for people. */
  text: string;
}

/** One file of a folder. */
export interface IFileEntry {
  /** Its path relative to the folder, with slashes. */
  name: string;
  /** Bytes. */
  size: number;
}

/** The forecast of a job's start before it is submitted. It assumes that no further job arrives. */
export interface IForecast {
  /** A word for programs. "soon" means that other jobs leave a slot for it, "never" with this plan and slots. */
  code: 'now' | 'soon' | 'waits' | 'never';
  /** One sentence with the numbers, for people. */
  text: string;
  /** Earliest and latest start, seconds from now. Null when unknown, or never. */
  start_low: number | null;
  /** Earliest and latest start, seconds from now. Null when unknown, or never. */
  start_high: number | null;
  /** How many it would hold once it has started and grown. Null when it would wait. */
  slots: number | null;
}

/** What an instance group has now. Counts are slots. */
export interface IGroupState {
  name: string;
  resource_group: string;
  parent: string;
  policy: string;
  /** Of its resource group. */
  slots: number;
  /** Jobs in it, and in the groups that it holds, that have not ended. */
  jobs: number;
  /** Ids of those without a slot that ask for one. */
  waiting: string[];
  /** Ids of those that have slots, and asked for more. */
  wanting: string[];
  held: number;
  entitled: number;
  /** Slots that are its own, of those that there are now. */
  own: number;
  /** What it is entitled to beyond its own, owned by nobody or by others. */
  borrowed: number;
  /** Group → slots of `borrowed` that it owns. */
  lenders: Record<string, number>;
  /** What others use of its own. */
  lent: number;
  /** Group → slots of `lent` that it uses. */
  borrowers: Record<string, number>;
}

export const HostStates = ['doubtful', 'draining', 'lost', 'starting', 'up'] as const;
export type HostState = (typeof HostStates)[number];

/** What lets machines join, shown once. */
export interface IHostToken {
  /** The text for `edt host join`. It has the server's key, its addresses, and a key of its own. */
  token: string;
  /** The line to run on the machine. */
  command: string;
  /** Seconds since the epoch. */
  expires: number;
  /** How many machines may join with it. */
  uses: number;
}

/** A host. */
export interface IHostView {
  /** As slots and resource groups name it. */
  name: string;
  /** Who has started it: "machine" for the server's own, "local", "joined" by a person, or the name of a provider in c.EdtApp.providers. */
  provider: string;
  /** How it stands, and `why` in a sentence, "" where there is nothing to say. */
  state: HostState;
  why: string;
  /** How many it offers, and `used` how many jobs hold there. While it drains it offers none. */
  slots: number;
  used: number;
  /** What the machine has: cores, indices of GPUs, bytes. */
  cores: number;
  /** What the machine has: cores, indices of GPUs, bytes. */
  gpus: number[];
  /** What the machine has: cores, indices of GPUs, bytes. */
  memory: number;
  /** Processes that want to run, bytes that are free. null where it was not told. */
  load: number | null;
  /** Processes that want to run, bytes that are free. null where it was not told. */
  memory_free: number | null;
  /** Processes that want to run, bytes that are free. null where it was not told. */
  disk_free: number | null;
  /** What the bits of a training depend on there. Hosts of one kind compute the same ones. */
  kind: string;
  /** Version of the package there. */
  wheel: string;
  /** Where its workers are reached. */
  address: string;
  /** When it came, or was lost, in seconds since the epoch. */
  since: number;
  /** Seconds from a beat to its answer, null where it was not told. */
  round_trip: number | null;
  /** Ids of the jobs that hold slots there. */
  jobs: string[];
}

export interface IInfo {
  name: 'jupyter-edt';
  version: string;
  max_upload_bytes: number;
  python: string;
  /** Who the server takes the caller for. */
  user: string;
  instance_groups: string[];
  /** How many slots exist now. */
  slots: number;
}

/** One queue, or an inner node of the tree that holds other groups and no jobs. */
export interface IInstanceGroup {
  /** What jobs call it. */
  name: string;
  /** The resource group with the slots it divides. A child is in its parent's. */
  resource_group?: string;
  /** Name of the group above it, "" for none. */
  parent?: string;
  /** How its jobs divide what it has. "fairshare": weight = priority, Webster's divisor rule. "priority": strictly the higher first, then the earlier. "fifo": strictly the earlier first. */
  policy?: 'fairshare' | 'priority' | 'fifo';
  /** Slots above a job's entitlement are taken back at the next update. Off: when it gives them up. */
  preemption?: boolean;
  /** Weight against its siblings for slots without an owner and for lent slots, ≥ 1. */
  share?: number;
  /** Number of slots that are its own whenever it can use them. */
  own?: number;
  /** Most of its own slots that others may use while it does not. null for all. */
  lend?: number | null;
  /** Most slots it may use beyond its own. null for no limit. */
  borrow?: number | null;
  /** Owner of jobs → weight, as a level between the group and its jobs. "*" for all others (1 where it is missing). null for no such level. */
  user_shares?: Record<string, number> | null;
  /** Divide by measured speed: a slot goes where it speeds up most. */
  throughput_aware?: boolean;
  /** Seconds a job runs at least before one that waits takes its turn, when there are more jobs than slots. */
  quantum?: number;
  /** Seconds after which a job that has never got a slot ends with ERROR. null for never. */
  pending_timeout?: number | null;
  /** The highest priority of a job here. Only an admin may exceed it. */
  max_priority?: number;
  /** Most jobs without a slot, suspended ones included, of all users and of one user. A submission above it is refused. null for no quota, as for all that follow. */
  max_waiting?: number | null;
  /** Most jobs with slots at once, of all users and of one user. More jobs wait. */
  max_running?: number | null;
  /** Most bytes that its jobs have stored, of all users and of one user. A submission above it is refused. */
  max_bytes?: number | null;
  /** Most jobs without a slot, suspended ones included, of all users and of one user. A submission above it is refused. null for no quota, as for all that follow. */
  user_waiting?: number | null;
  /** Most jobs with slots at once, of all users and of one user. More jobs wait. */
  user_running?: number | null;
  /** Most slots of one user's jobs. The group is then divided among its users first, as by `user_shares`. */
  user_slots?: number | null;
  /** Most bytes that its jobs have stored, of all users and of one user. A submission above it is refused. */
  user_bytes?: number | null;
}

export interface IJobPage {
  jobs: IJobView[];
  next?: string;
}

/** A change of a job's settings. None leaves a field as it is. */
export interface IJobPatch {
  /** Weight under fair share; twice the weight gets about twice the slots. At most its queue's `max_priority` (10,000), except for admins. */
  priority?: number | null;
  /** Most slots it may hold at once. */
  max_workers?: number | null;
  /** The queue it moves to. */
  instance_group?: string | null;
  /** Text about the job for people; empty for none. */
  notes?: string | null;
  /** Words to find it by, separated by commas, in place of the present ones; empty for none. */
  tags?: string[] | null;
  /** The project it belongs to; empty for none. */
  project?: string | null;
  /** The experiment in that project; empty for none. */
  experiment?: string | null;
}

/** How far the training is. Updates and epochs count from 0. */
export interface IJobProgress {
  /** Number of committed updates. */
  update: number;
  total_updates: number;
  epoch: number;
  epochs: number;
  /** Means over the samples of the running epoch so far, and of the last epoch once that has ended. */
  loss: number | null;
  /** Means over the samples of the running epoch so far, and of the last epoch once that has ended. */
  accuracy: number | null;
  /** Means of the last validation. */
  test_loss: number | null;
  /** Means of the last validation. */
  test_accuracy: number | null;
  samples_per_second: number | null;
  /** That loss is NaN or infinite, for which JSON has only null. */
  not_a_number: boolean;
  /** Why the weights depend on the number of workers, in sentences. Empty while nothing was found. */
  inexact: string;
}

export const JobStates = ['ERROR', 'FAILED', 'FINISHED', 'KILLED', 'LAUNCHING', 'PENDING', 'RECOVERING', 'RUNNING', 'SUBMITTED', 'SUSPENDED'] as const;
export type JobState = (typeof JobStates)[number];

/** A job as the server shows it. Times are seconds since the epoch (UTC). */
export interface IJobView {
  /** Most slots it may hold at once. */
  max_workers: number;
  /** Weight under fair share; twice the weight gets about twice the slots. At most its queue's `max_priority` (10,000), except for admins. */
  priority: number;
  /** The queue, empty for the server's first. */
  instance_group: string;
  /** Text about the job for people, at most 10,000 characters. */
  notes: string;
  /** Words to find it by, at most 20 of at most 40 characters, separated by commas. */
  tags: string[];
  /** Name of the project it belongs to, at most 100 characters without a slash. */
  project: string;
  /** Name of the experiment in that project whose runs it is compared with. */
  experiment: string;
  id: string;
  name: string;
  owner: string;
  state: JobState;
  state_since: number;
  created: number;
  started: number | null;
  ended: number | null;
  mode: string;
  seed: number;
  main: string;
  args: string[];
  /** How many slots it holds. */
  slots: number;
  /** Number of parts of an update's batch, null before the first training. */
  shards: number | null;
  progress: IJobProgress | null;
  /** Why it does not hold what it asked for. */
  reason: IReason | null;
  /** One sentence about the state, empty when the state needs none. */
  message: string;
  /** Where its results lie on the server's machine. */
  result_dir: string;
  /** Id of the job or name of the version with whose weights it started. Empty for the script's own. */
  warm_start: string;
  min_workers: number;
  slots_per_unit: number;
  pending_timeout: number | null;
  /** What runs its script. */
  framework: string;
  /** Name of the registered data set that it reads. Empty for none. */
  dataset: string;
  /** Name of the model of the catalogue that it trains. Empty for none. */
  model: string;
  /** Id of the job with the training it validates. Empty for a job that trains. */
  validates: string;
  /** How much of the training its log has. */
  log: 'quiet' | 'batches';
  /** Id of the search that it is a trial of. Empty for none. */
  search: string;
}

export interface ILogPage {
  lines: ILoggedLine[];
  /** The cursor behind the last line. */
  next: string;
  /** The job has ended and these were its last lines. */
  done: boolean;
}

/** A line of a log. */
export interface ILoggedLine {
  /** When it was seen in its file, seconds since the epoch. */
  time: number;
  /** "stdout" or "stderr" of the driver, "elog", or "worker". */
  stream: string;
  /** The worker's number, null for the driver. */
  worker: number | null;
  /** True when it was written to stderr. */
  err: boolean;
  /** The line without its newline. Bytes that are no UTF-8 are replaced. */
  text: string;
}

/** A model of the catalogue. */
export interface IModel {
  /** Identifies it where a later entry could have the same `name`. */
  id: string;
  name: string;
  owner: string;
  kind: 'model' | 'template';
  description: string;
  framework: string;
  main: string;
  args: string[];
  hyperparameters: Record<string, unknown>;
  dataset: string;
  max_workers: number;
  /** Where its code came from, for people. */
  origin: string;
  /** The model it was made from, "" for none. */
  template: string;
  /** Its script takes `--train_dir` and `--weights`, as models of WMLA's console do. A training passes both. */
  console: boolean;
  /** Of its code. */
  files: number;
  /** Of its code. */
  size: number;
  /** Seconds since the epoch (UTC). */
  created: number;
  /** Seconds since the epoch (UTC). */
  changed: number;
  /** The number of jobs that train it. */
  trainings: number;
  /** It has weights of its own, with which a training begins. */
  weights: boolean;
}

/** A model with its trainings, the newest first, and the files of its code. */
export interface IModelDetails {
  model: IModel;
  trainings: IJobView[];
  files: IFileEntry[];
}

export interface IModels {
  models: IModel[];
  frameworks: string[];
  hyperparameters: string[];
}

/** A request for a validation. */
export interface INewValidation {
  /** What is measured, with commas (default: loss,accuracy). There are loss, accuracy, top<K> (such as top5), precision, recall, f1, iou and confusion. */
  metrics?: string[] | string;
  /** The score from which a binary output means class 1, between 0 and 1 (default: 0.5). */
  threshold?: number | null;
  /** Name of a registered data set (default: the training's). */
  dataset?: string | null;
  /** What to call the validation's job (default: the training's name and "-validation"). */
  name?: string | null;
  /** Most slots it may hold at once. */
  max_workers?: number;
  /** Its queue (default: the training's). */
  instance_group?: string | null;
  /** Its weight under fair share (default: the training's). */
  priority?: number | null;
}

/** One file of a package. */
export interface IPackedFile {
  /** Its path in the package. */
  name: string;
  /** Bytes. */
  size: number;
}

export interface IPoint {
  /** Which call of train(), from 0. */
  training: number;
  kind: 'train' | 'test';
  update: number;
  epoch: number;
  loss: number | null;
  accuracy: number | null;
  samples?: number;
  world?: number;
  time: number;
  /** Further ones by name. */
  metrics?: Record<string, number | null>;
  /** Of one of several evaluations, empty without one. */
  name?: string;
  /** Of a test: whether figures draw it. Of several evaluations they draw one. */
  drawn?: boolean;
  /** Grows with each evaluation of a loop of one's own. */
  number?: number | null;
}

/** What would be submitted. */
export interface IPreview {
  /** Name of the job. */
  name: string;
  /** The script it would run, empty when it runs a command. */
  main: string;
  /** The files of the package, sorted by name. */
  files: IPackedFile[];
  /** Bytes of all files. */
  size: number;
  /** Sentences on what was left out or would not run. */
  notes: string[];
  /** When it would start. */
  forecast: IForecast;
}

/** How much of one quota of an instance group is used. */
export interface IQuotaUse {
  /** The group. */
  instance_group: string;
  /** Its field in the plan. Those that begin with `user` are for each user, the others for all together. */
  quota: 'max_waiting' | 'max_running' | 'max_bytes' | 'user_waiting' | 'user_running' | 'user_slots' | 'user_bytes';
  /** Jobs, slots or bytes in use: of the user who asks, or of all users. */
  used: number;
  /** The most that may be used. */
  limit: number;
  /** Four fifths of it, or more, are used. */
  near: boolean;
  /** The same in a sentence. */
  text: string;
}

/** Why a job does not hold what it asked for. */
export interface IReason {
  /** A word for programs. */
  code: 'suspended' | 'never_fits' | 'busy' | 'starting' | 'share' | 'capped' | 'order' | 'limit' | 'unit' | 'slower' | 'quota' | 'restarts' | 'apart';
  /** A plain sentence with the numbers, for people. */
  text: string;
  /** How it is computed, for those who ask; "" when there is nothing to add. */
  details: string;
  /** Slots. */
  held: number;
  /** Slots. */
  entitled: number;
  /** Slots. */
  asked: number;
  /** The other numbers of the sentence. */
  numbers: Record<string, unknown>;
}

/** Hosts and how many slots each of them offers. */
export interface IResourceGroup {
  /** What instance groups call it. */
  name: string;
  /** Names of its hosts, empty for every host that no other resource group names. */
  hosts?: string[];
  /** Of each host: "ngpus", "ncpus", one of them times or divided by a whole number ("ncpus/2"), or a number. "" for what the host offers by itself (one slot a GPU, else one a CPU share). */
  slots?: string;
  /** Its jobs use only instructions that all processors have. They are slower, and may be on hosts whose processors differ. */
  portable?: boolean;
}

/** How far the trials are that are compared with each other after the same epochs. */
export interface IRungView {
  /** The bracket of hyperband, 0 for other algorithms. */
  bracket: number;
  /** Epochs after which they are compared, 0 for the end of their jobs. */
  budget: number;
  /** How many have been given this far to train. */
  trials: number;
  /** How many have reached it, failed ones included. */
  reported: number;
  /** How many of these were given more. */
  promoted: number;
}

export const SearchStates = ['CREATED', 'FAILED', 'FINISHED', 'PAUSED', 'RUNNING', 'STOPPED'] as const;
export type SearchState = (typeof SearchStates)[number];

/** A search as the server shows it, without its trials. Times are seconds since the epoch (UTC). */
export interface ISearchView {
  id: string;
  owner: string;
  /** Its settings, defaults filled in. */
  spec: Record<string, unknown>;
  state: SearchState;
  /** One sentence about the state, empty when the state needs none. */
  message: string;
  created: number;
  ended: number | null;
  /** How many trials are in each state. */
  counts: Record<string, number>;
  /** How far its trials are. */
  rungs: IRungView[];
  /** The trial with the best value among those with the most epochs, null before the first report. */
  best: ITrialView | null;
  /** How many entries of its log came from outside. It is repeatable where there are none. */
  outside: number;
  /** Epochs at which its trials are compared, and at last those of a whole trial. */
  budgets: number[];
  /** How many its trials hold. */
  slots: number;
  /** How many its queue has for it and others. */
  usable_slots: number;
  /** How many trials there are to be: those of its settings, and with pbt their branches. */
  expected: number;
}

export const TrialStates = ['FAILED', 'FINISHED', 'HELD', 'PRUNED', 'RUNNING', 'STOPPED', 'WAITING'] as const;
export type TrialState = (typeof TrialStates)[number];

/** A trial as the server shows it. Times are seconds since the epoch (UTC). */
export interface ITrialView {
  /** Id of its search. */
  search: string;
  /** Its number in the search, from 0. */
  number: number;
  state: TrialState;
  /** The comparison it goes to, from 0. */
  rung: number;
  /** The bracket of hyperband that it belongs to. */
  bracket: number;
  /** Its values by name. */
  params: Record<string, unknown>;
  /** The metric that is compared, null before the first report and where it is NaN or infinite. */
  value: number | null;
  /** Epochs of its newest report. */
  epochs: number;
  /** Id of its present job, empty before it has one. */
  job: string;
  /** Number of the trial whose state it went on from, null for its own. */
  parent: number | null;
  created: number;
  ended: number | null;
  /** One sentence about the state, empty when the state needs none. */
  message: string;
}

/** The result of a validation: the content of RESULT_DIR's `validation.json`. */
export interface IValidated {
  /** Id and name of the validated job. */
  training: string;
  /** Id and name of the validated job. */
  training_name: string;
  /** Size of the test data. */
  samples: number;
  /** The requested metrics that are one number, in that order. null for NaN. */
  metrics: Record<string, number | null>;
  /** Means of the metrics that the script gave `FabricModel`, by name. */
  own: Record<string, number | null>;
  /** Number of classes. null when only the loss was requested. 2 for binary outputs. */
  classes: number | null;
  /** The score binary outputs were compared with. null when the highest score counted. */
  threshold: number | null;
  /** Rows are labels, columns are predictions. null when it was not requested. */
  confusion: number[][] | null;
  /** Scores by class when precision, recall or f1 was requested. Empty above 1000 classes. */
  per_class: IClassScores[];
  /** When it ended, seconds since the epoch. */
  time: number;
}

/** The effect of a change of a job's settings: the slots of each job, and the end of this one. */
export interface IWhatIf {
  /** Id of the job with the changed settings. */
  job: string;
  /** Its settings after the change. */
  priority: number;
  /** Its settings after the change. */
  max_workers: number;
  /** Its settings after the change. */
  instance_group: string;
  /** Every job that has not ended, in order of arrival. */
  shares: IWhatIfShare[];
  /** Forecast of the end of its training without the change, seconds since the epoch. Null while its progress is unknown. It assumes that no further job arrives, and that jobs of unknown progress stay. */
  ends_now: number | null;
  /** The same with the change. */
  ends_then: number | null;
  /** Why it would not hold what it asks for. Null when it would. */
  reason: IReason | null;
}

/** A job's slots now and after the change. */
export interface IWhatIfShare {
  job: string;
  name: string;
  /** Slots it holds. */
  now: number;
  /** Slots it would hold, once every worker that has to leave has left. */
  then: number;
}

export interface IWorker {
  worker: number;
  slot: number;
  host: string;
  pid: number;
  rank: number | null;
  generation: number | null;
}
