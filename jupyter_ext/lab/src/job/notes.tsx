/** A job's labels and notes, which may be edited at any time, also after the job has ended. */

import { useEffect, useState } from 'react';
import type { FormEvent, ReactElement } from 'react';

import { explain } from '../page/explain';
import { Field } from '../page/field';
import { useEdt } from '../page/surroundings';
import { tagsOf } from '../train/draft';
import type { IJobView } from '../views';

const WORDS = [
  ['project', 'Project', 'What its runs are compared in.'],
  ['experiment', 'Experiment', 'The runs of the project that belong together.'],
  ['tags', 'Tags', 'Words to find it by, separated by commas.']
] as const;
const NAMES = [...WORDS.map(([name]) => name), 'notes'] as const;

/** `onChanged` gets the job as the server answers. */
export function Notes(props: { job: IJobView; onChanged: (job: IJobView) => void }): ReactElement {
  const { job } = props;
  const { api } = useEdt();
  const { project = '', experiment = '', tags = [], notes = '' } = job;
  const stored = { project, experiment, tags: tags.join(', '), notes };
  const [draft, setDraft] = useState(stored);
  const [refused, setRefused] = useState({ field: '', text: '' });
  const [busy, setBusy] = useState(false);
  const changed = NAMES.some(name => draft[name] !== stored[name]);
  useEffect(() => setDraft(stored), Object.values(stored));

  const edit = (change: Partial<typeof draft>): void => {
    setRefused({ field: '', text: '' });
    setDraft(old => ({ ...old, ...change }));
  };
  const save = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      props.onChanged(await api.update(job.id, { ...draft, tags: tagsOf(draft.tags) }));
    } catch (error) {
      const { message, hint, field } = explain(error);
      setRefused({ field, text: `${message} ${hint}`.trim() });
    } finally {
      setBusy(false);
    }
  };
  return (
    <details className="jp-edt-more" open={NAMES.some(name => stored[name] !== '') || undefined}>
      <summary>Project, tags and notes</summary>
      <form className="jp-edt-controls" noValidate onSubmit={event => void save(event)} aria-label="Project, tags and notes">
        {WORDS.map(([name, label, hint]) => (
          <Field key={name} label={label} hint={hint} error={refused.field === name ? refused.text : undefined}>
            {input => <input {...input} name={name} value={draft[name]} onChange={event => edit({ [name]: event.target.value })} />}
          </Field>
        ))}
        <Field label="Notes" wide error={WORDS.some(([name]) => name === refused.field) ? undefined : refused.text}>
          {input => (
            <textarea {...input} name="notes" rows={3} value={draft.notes} onChange={event => edit({ notes: event.target.value })} />
          )}
        </Field>
        <div className="jp-edt-controls-end">
          <button type="submit" className="jp-edt-button jp-mod-accept" disabled={!changed || busy}>
            {busy ? 'Saving …' : 'Save'}
          </button>
        </div>
      </form>
    </details>
  );
}
