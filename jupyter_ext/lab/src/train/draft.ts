/** What a person has written into the train form, and the request that it makes. Pure. */

import { UnclosedQuote, line, words } from './words';

/** The form's answers, as they were written; "" where nothing was. */
export interface Draft {
  /** "search" for a search whose trials are such jobs, else "job". */
  what: string;
  /** Of a clone the id and the name of the job it is one of; "" otherwise. */
  clone_of: string;
  clone_name: string;
  /** Of a clone: "job" for the code that came in with that job, "files" for the source below. */
  code: string;
  /** A folder, script or notebook, as the file browser names it. */
  source: string;
  main: string;
  /** Of a notebook, only the cells with this tag; "" for all. */
  tag: string;
  name: string;
  dataset: string;
  instance_group: string;
  max_workers: string;
  min_workers: string;
  priority: string;
  args: string;
  mode: string;
  seed: string;
  log: string;
  warm_start: string;
  framework: string;
  notes: string;
  /** Words with commas between them. */
  tags: string;
  project: string;
  experiment: string;
  /** The kernel of the notebook that was in front when the form was opened, as Jupyter names it; "" for none. */
  kernel: string;
  /** What it runs in, a path; "" for what that kernel runs in, else the server's own, and of a clone the job's. */
  python: string;
  /** Of a search: its hyper-parameters as a text, the metric, and numbers; "" for what the server takes. */
  space: string;
  metric: string;
  trials: string;
  epochs: string;
  min_epochs: string;
  parallel: string;
}

export const EMPTY: Draft = {
  what: 'job',
  clone_of: '',
  clone_name: '',
  code: 'files',
  source: '',
  main: '',
  tag: '',
  name: '',
  dataset: '',
  instance_group: '',
  max_workers: '4',
  min_workers: '1',
  priority: '5000',
  args: '',
  mode: 'exact',
  seed: '0',
  log: 'quiet',
  warm_start: '',
  framework: 'edtPyTorch',
  notes: '',
  tags: '',
  project: '',
  experiment: '',
  kernel: '',
  python: '',
  space: '',
  metric: 'test_accuracy',
  trials: '27',
  epochs: '',
  min_epochs: '',
  parallel: ''
};

/** The body of `POST /previews`, `POST /submissions` and `POST /searches/submissions`. */
export interface Picked {
  source: string | { job: string };
  main: string | null;
  tag: string | null;
  spec: Record<string, unknown>;
  search: Record<string, unknown> | null;
}

/** A field's name and what is wrong with it. */
export type Wrong = Partial<Record<keyof Draft, string>>;

const WHOLE: readonly (readonly [keyof Draft, number])[] = [
  ['max_workers', 1],
  ['min_workers', 1],
  ['priority', 1],
  ['seed', 0]
];
/** Whole numbers of a search. */
const OF_SEARCH: readonly (readonly [keyof Draft, number])[] = [
  ['trials', 1],
  ['epochs', 1],
  ['min_epochs', 1],
  ['parallel', 1]
];
const PLAIN: readonly (keyof Draft)[] = ['name', 'dataset', 'instance_group', 'warm_start', 'python', 'notes', 'project', 'experiment'];
/** Of these "" says something that a job to clone may say otherwise. */
const NONE: readonly (keyof Draft)[] = ['dataset', 'instance_group', 'warm_start', 'notes', 'project', 'experiment'];

/** True when the code is the one that came in with another job. */
export function ofJob(draft: Draft): boolean {
  return draft.clone_of !== '' && draft.code === 'job';
}

/** The tags in a text with commas. */
export function tagsOf(text: string): string[] {
  return text.split(',').map(tag => tag.trim()).filter(tag => tag !== '');
}

/** The request, or what must be mended first. What is empty or as usual is left to the server. */
export function request(draft: Draft): { body: Picked | null; wrong: Wrong } {
  const wrong: Wrong = {};
  const spec: Record<string, unknown> = { mode: draft.mode, log: draft.log, framework: draft.framework };
  if (!ofJob(draft) && draft.source.trim() === '') {
    wrong.source = 'Say what to train: a folder, a script or a notebook.';
  }
  const whole = (name: keyof Draft, least: number, into: Record<string, unknown>): void => {
    const value = Number(draft[name]);
    if (draft[name].trim() === '' || !Number.isInteger(value) || value < least) {
      wrong[name] = `Give a whole number of at least ${least}.`;
    } else {
      into[name] = value;
    }
  };
  for (const [name, least] of WHOLE) {
    whole(name, least, spec);
  }
  const search = draft.what === 'search' ? searchOf(draft, wrong, whole) : null;
  if (search !== null) {
    // The form's seed is that of the suggested values, as in Python and at a shell.
    search['seed'] = spec['seed'];
    delete spec['seed'];
  }
  for (const name of PLAIN) {
    if (draft[name].trim() !== '' || (ofJob(draft) && NONE.includes(name))) {
      spec[name] = draft[name].trim();
    }
  }
  const tags = tagsOf(draft.tags);
  if (tags.length > 0 || ofJob(draft)) {
    spec['tags'] = tags;
  }
  try {
    spec['args'] = words(draft.args);
  } catch (error) {
    if (!(error instanceof UnclosedQuote)) {
      throw error;
    }
    wrong.args = error.message;
  }
  if (Object.keys(wrong).length > 0) {
    return { body: null, wrong };
  }
  const main = draft.main.trim() || null;
  if (ofJob(draft)) {
    return { body: { source: { job: draft.clone_of }, main, tag: null, spec, search }, wrong };
  }
  const source = draft.source.trim().replace(/^\/+|\/+$/g, '');
  return { body: { source, main, tag: draft.tag.trim() || null, spec, search }, wrong };
}

/** The settings of the search; what is missing is put into `wrong`. */
function searchOf(
  draft: Draft,
  wrong: Wrong,
  whole: (name: keyof Draft, least: number, into: Record<string, unknown>) => void
): Record<string, unknown> {
  const search: Record<string, unknown> = { space: draft.space, metric: draft.metric.trim() };
  if (draft.space.trim() === '') {
    wrong.space = 'Say what is searched, such as lr=log(1e-4,1e-1) width=32|64|128.';
  }
  if (draft.metric.trim() === '') {
    wrong.metric = 'Say which metric is compared, such as test_accuracy.';
  }
  for (const [name, least] of OF_SEARCH) {
    if (draft[name].trim() !== '') {
      whole(name, least, search);
    }
  }
  return search;
}

/** What of a job another one like it begins with. */
interface Like {
  id: string;
  name: string;
  main: string;
  args: readonly string[];
  priority: number;
  max_workers: number;
  min_workers: number;
  instance_group: string;
  mode: string;
  seed: number;
  log: string;
  framework: string;
  warm_start: string;
  dataset?: string;
  notes?: string;
  tags?: readonly string[];
  project?: string;
  experiment?: string;
}

/** A draft of another job like this one, of the code that came in with it. */
export function cloneOf(job: Like): Draft {
  return {
    ...EMPTY,
    clone_of: job.id,
    clone_name: job.name,
    code: 'job',
    main: job.main,
    name: job.name,
    dataset: job.dataset ?? '',
    instance_group: job.instance_group,
    max_workers: String(job.max_workers),
    min_workers: String(job.min_workers),
    priority: String(job.priority),
    args: line(job.args),
    mode: job.mode,
    seed: String(job.seed),
    log: job.log,
    warm_start: job.warm_start,
    framework: job.framework,
    notes: job.notes ?? '',
    tags: (job.tags ?? []).join(', '),
    project: job.project ?? '',
    experiment: job.experiment ?? ''
  };
}

/** What kind of thing a path names, by its ending. */
export function kindOf(path: string): 'notebook' | 'script' | 'folder' {
  return path.endsWith('.ipynb') ? 'notebook' : path.endsWith('.py') ? 'script' : 'folder';
}
