/**
 * The train form: what to train, with what, and how much of the machine it may use. While it is filled in it shows what
 * would be packed and when the job would start; what is wrong is said at the field it is about.
 */

import { useId, useRef, useState } from 'react';
import type { FormEvent, ReactElement, ReactNode } from 'react';

import type { Contents } from '@jupyterlab/services';

import { useEdt } from '../page/surroundings';
import { explain } from '../page/explain';
import type { Explained } from '../page/explain';
import { Field } from '../page/field';
import type { InputAttributes } from '../page/field';
import { usePolled } from '../page/polled';
import { NOTHING_WRONG, usePreview } from '../page/previewed';
import { Failure, Loading } from '../page/standing';
import { Tabs } from '../page/tabs';
import type { IJobView, ISearchView } from '../views';

import type { IPreview } from './answers';
import { kindOf, ofJob, request } from './draft';
import type { Draft, Wrong } from './draft';
import { Preview } from './preview';
import { pythons, usualPython, whose } from './pythons';
import type { IInterpreters } from './pythons';
import { SourceField } from './source_field';

const CODE_HINTS: Record<string, string> = {
  job: 'The server has kept it, whatever has become of the files since.',
  files: 'Packed anew, as it is now.'
};
const KINDS = [
  {
    key: 'job',
    label: 'One training',
    content: () => (
      <p className="jp-edt-hint">
        The job starts as soon as one slot is free, grows up to its maximum while slots are free, and goes on when you close
        this tab, the kernel or the browser.
      </p>
    )
  },
  {
    key: 'search',
    label: 'Search',
    content: () => (
      <p className="jp-edt-hint">
        The script trains many times with different values, and the best is found. Each trial is a job; those that fall
        behind end early. It goes on when you close this tab, the kernel or the browser.
      </p>
    )
  }
];
/** Of a search: field, label, hint, placeholder. */
const NUMBERS = [
  ['trials', 'Trials', 'How many sets of values are tried.', ''],
  ['epochs', 'Epochs', 'Of a whole trial.', 'as the script says'],
  ['min_epochs', 'Compare first after', 'Epochs; a third of the trials goes on each time.', 'never'],
  ['parallel', 'At once', 'Trials that train at the same time, at most.', 'as many as get slots']
] as const;

/** The names of data sets; none where there is no catalogue. */
interface IDatasets {
  datasets: { name: string; type: string; trouble: string }[];
}

/** `trouble`, why the job to mend failed, and `note` are shown above the form; `onSubmitted` gets the new job and the draft it was made of. */
export function TrainPage(props: {
  draft: Draft;
  note: string;
  trouble: string;
  notebook: string;
  contents: Contents.IManager;
  onDraft: (draft: Draft) => void;
  onSubmitted: (job: IJobView, draft: Draft) => void;
  onSearch: (search: ISearchView) => void;
}): ReactElement {
  const { api, jobs } = useEdt();
  const [draft, setDraft] = useState(props.draft);
  const [tried, setTried] = useState(false);
  const [refused, setRefused] = useState<Explained>(NOTHING_WRONG);
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const scriptList = useId();
  const info = usePolled('info', () => api.info(), null);
  const datasets = usePolled('datasets', () => api.request<IDatasets>('datasets'), null);
  const interpreters = usePolled('interpreters', () => api.request<IInterpreters>('interpreters'), null).value?.interpreters ?? [];
  const usual = usualPython(interpreters, draft);
  const { body, wrong } = request({ ...draft, python: draft.python || usual });
  const preview = usePreview<IPreview>('previews', body === null ? '' : JSON.stringify(body));

  const change = (changes: Partial<Draft>): void => {
    const next = { ...draft, ...changes };
    setDraft(next);
    setRefused(NOTHING_WRONG);
    props.onDraft(next);
  };
  const told = refused.message !== '' ? refused : preview.error;
  const shown: Wrong = { ...(tried ? wrong : {}) };
  const searches = draft.what === 'search';
  const asked = Object.keys(draft) as (keyof Draft)[];
  // A part of a field is said at the field: space.lr.
  const field = asked.find(name => name === told.field.split('.')[0]);
  if (field !== undefined) {
    shown[field] ??= `${told.message} ${told.hint}`.trim();
  }
  const elsewhere = told.message !== '' && field === undefined;

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setTried(true);
    if (body === null) {
      const first = asked.find(name => wrong[name] !== undefined);
      form.current?.querySelector<HTMLElement>(`[name="${first ?? 'source'}"]`)?.focus();
      return;
    }
    setBusy(true);
    try {
      if (searches) {
        props.onSearch(await api.request<ISearchView>('searches/submissions', {}, 'POST', body));
        return;
      }
      const job = await api.request<IJobView>('submissions', {}, 'POST', body);
      jobs.put(job);
      props.onSubmitted(job, draft);
    } catch (error) {
      setRefused(explain(error));
    } finally {
      setBusy(false);
    }
  };

  const text = (name: keyof Draft, input: InputAttributes, more: object = {}): ReactElement => (
    <input
      {...input}
      name={name}
      value={draft[name]}
      autoComplete="off"
      spellCheck={false}
      onChange={event => change({ [name]: event.target.value })}
      {...more}
    />
  );
  const choice = (name: keyof Draft, input: InputAttributes, options: ReactNode): ReactElement => (
    <select {...input} name={name} value={draft[name]} onChange={event => change({ [name]: event.target.value })}>
      {options}
    </select>
  );
  /** The names that there are, and the chosen one also where it is not among them any more. */
  const named = (names: readonly string[], chosen: string): ReactNode =>
    [...new Set([...names, chosen])]
      .filter(name => name !== '')
      .map(name => (
        <option key={name} value={name}>
          {name}
        </option>
      ));
  const scripts = (preview.value?.files ?? []).map(file => file.name).filter(name => name.endsWith('.py'));
  const groups = info.value?.instance_groups ?? [];
  // What came in with a job is a folder, whatever it was packed from.
  const kind = ofJob(draft) ? 'folder' : kindOf(draft.source);
  return (
    <div className="jp-edt-train">
      <h2>{draft.clone_of === '' ? 'Train' : `${props.trouble === '' ? 'Clone of' : 'Mend'} ${draft.clone_name}`}</h2>
      <Tabs label="What to start" tabs={KINDS} chosen={draft.what} onChoose={what => change({ what })} />
      {props.trouble !== '' && (
        <p className="jp-edt-message jp-mod-wrong">
          <span aria-hidden="true">✘︎ </span>
          {props.trouble}
        </p>
      )}
      {props.note !== '' && <p className="jp-edt-reason">ℹ {props.note}</p>}
      <div className="jp-edt-train-columns">
        <form ref={form} onSubmit={event => void submit(event)} noValidate aria-label="Train" className="jp-edt-fields">
          {draft.clone_of !== '' && (
            <Field label="Code" wide hint={CODE_HINTS[draft.code]} error={ofJob(draft) ? shown.source : undefined}>
              {input =>
                choice(
                  'code',
                  input,
                  <>
                    <option value="job">as it came in with {draft.clone_name}</option>
                    <option value="files">from the file browser</option>
                  </>
                )
              }
            </Field>
          )}
          {!ofJob(draft) && (
            <SourceField
              value={draft.source}
              error={shown.source}
              contents={props.contents}
              notebook={props.notebook}
              onChange={source => change({ source, ...(kindOf(source) === 'folder' ? {} : { main: '' }) })}
            />
          )}
          {kind === 'notebook' && (
            <Field label="Cells" hint="Give cells the tag edt in the property inspector to train with them alone." error={shown.tag}>
              {input =>
                choice(
                  'tag',
                  input,
                  <>
                    <option value="">all code cells</option>
                    <option value="edt">only those tagged edt</option>
                  </>
                )
              }
            </Field>
          )}
          {kind === 'folder' && (
            <Field label="Main file" hint="The script that is run, in that folder." error={shown.main}>
              {input => (
                <>
                  {text('main', input, {
                    list: scriptList,
                    placeholder: preview.value?.main ?? 'train.py'
                  })}
                  <datalist id={scriptList}>
                    {scripts.map(name => (
                      <option key={name} value={name} />
                    ))}
                  </datalist>
                </>
              )}
            </Field>
          )}
          <Field label="Arguments" hint="As on a command line; quotes keep words together." error={shown.args}>
            {input => text('args', input, { placeholder: '--epochs 5 --lr 0.1', autoFocus: /\bargument/.test(props.trouble) })}
          </Field>
          {searches && (
            <>
              <Field label="Hyper-parameters" wide hint="A range or choices for each. In the arguments {lr} is the trial's value of lr." error={shown.space}>
                {input => text('space', input, { placeholder: 'lr=log(1e-4,1e-1) width=32|64|128 depth=integer(1,6)' })}
              </Field>
              <Field label="Metric" hint="What is compared; a loss is minimized, an accuracy maximized." error={shown.metric}>
                {input => text('metric', input)}
              </Field>
              {NUMBERS.map(([name, label, hint, placeholder]) => (
                <Field key={name} label={label} hint={hint} error={shown[name]}>
                  {input => text(name, input, { type: 'number', min: 1, placeholder })}
                </Field>
              ))}
            </>
          )}
          <Field label="Data set" hint="Your script finds its folder in DATA_DIR." error={shown.dataset}>
            {input =>
              choice(
                'dataset',
                input,
                <>
                  <option value="">none</option>
                  {named((datasets.value?.datasets ?? []).map(each => each.name), draft.dataset)}
                </>
              )
            }
          </Field>
          <Field label="Instance group" hint="The queue it waits in." error={shown.instance_group}>
            {input =>
              choice(
                'instance_group',
                input,
                <>
                  <option value="">{groups[0] === undefined ? 'the first' : `${groups[0]} (the first)`}</option>
                  {named(groups.slice(1), draft.instance_group)}
                </>
              )
            }
          </Field>
          <Field label="Maximum workers" hint="Slots it may use at most; it starts with one." error={shown.max_workers}>
            {input => text('max_workers', input, { type: 'number', min: 1 })}
          </Field>
          <Field label="Priority" hint="Twice as much is twice the share of the slots." error={shown.priority}>
            {input => text('priority', input, { type: 'number', min: 0, step: 500 })}
          </Field>
          <details className="jp-edt-more" open={(['seed', 'python', 'min_workers', 'framework'] as const).some(name => shown[name] !== undefined) || undefined}>
            <summary>More</summary>
            <div className="jp-edt-fields">
              <Field label="Name" hint="What people call the job." error={shown.name}>
                {input => text('name', input, { placeholder: preview.value?.name ?? '' })}
              </Field>
              <Field label="Framework" error={shown.framework} hint="Elastic jobs grow and shrink while they train.">
                {input =>
                  choice(
                    'framework',
                    input,
                    <>
                    <option value="edtPyTorch">elastic (edtPyTorch)</option>
                    <option value="torchrun">torchrun script</option>
                    <option value="PyTorch">plain PyTorch, one process</option>
                    <option value="distPyTorch">distributed PyTorch, fixed size</option>
                    </>
                  )
                }
              </Field>
              <Field label="Python" hint={whose(draft, usual)} error={shown.python}>
                {input => choice('python', input, pythons(interpreters, draft, usual))}
              </Field>
              <Field label="Mode" hint="Exact: the same bits on any number of workers." error={shown.mode}>
                {input =>
                  choice(
                    'mode',
                    input,
                    <>
                    <option value="exact">exact</option>
                    <option value="fast">fast</option>
                    </>
                  )
                }
              </Field>
              <Field label="Seed" hint="Of sample order, dropout and augmentation." error={shown.seed}>
                {input => text('seed', input, { type: 'number', min: 0 })}
              </Field>
              <Field label="Log" hint="Of the training; what the script prints is always in it." error={shown.log}>
                {input =>
                  choice(
                    'log',
                    input,
                    <>
                    <option value="quiet">a line for each epoch</option>
                    <option value="batches">lines for every batch</option>
                    </>
                  )
                }
              </Field>
              <Field label="Minimum workers" hint="Slots without which it does not run." error={shown.min_workers}>
                {input => text('min_workers', input, { type: 'number', min: 1 })}
              </Field>
              <Field label="Begin with the weights of" hint="Id of a job of yours; empty for none." error={shown.warm_start}>
                {input => text('warm_start', input)}
              </Field>
              <Field label="Project" hint="What its runs are compared in; empty for none." error={shown.project}>
                {input => text('project', input)}
              </Field>
              <Field label="Experiment" hint="The runs of the project that belong together." error={shown.experiment}>
                {input => text('experiment', input)}
              </Field>
              <Field label="Tags" hint="Words to find it by, separated by commas." error={shown.tags}>
                {input => text('tags', input)}
              </Field>
              <Field label="Notes" hint="Text about the job, for you." error={shown.notes}>
                {input => text('notes', input)}
              </Field>
            </div>
          </details>
          <div className="jp-edt-form-end">
            <button type="submit" className="jp-edt-button jp-mod-accept" disabled={busy}>
              {busy ? 'Submitting …' : searches ? 'Start the Search' : 'Submit'}
            </button>
          </div>
          {elsewhere && <Failure error={told.error} />}
        </form>
        <aside aria-label="What would be sent">
          <h3>What would be sent</h3>
          {preview.value !== null && <Preview of={preview.value} fresh={preview.fresh} />}
          {preview.value === null && body !== null && preview.error.message === '' && (
            <Loading what="Looking at the files" />
          )}
          {preview.value === null && (body === null || preview.error.message !== '') && (
            <p className="jp-edt-standing">
              {draft.source.trim() === '' && !ofJob(draft)
                ? 'Say what to train: the files that would be packed, and when the job would start, appear here.'
                : 'There is nothing to show yet: the form is not complete, or something in it is wrong.'}
            </p>
          )}
        </aside>
      </div>
    </div>
  );
}
