/** A job's tags and notes, which may be edited at any time, also after the job has ended. */

import { useEffect, useState } from 'react';
import type { FormEvent, ReactElement } from 'react';

import { explain } from '../page/explain';
import { Field } from '../page/field';
import { useEdt } from '../page/surroundings';
import { tagsOf } from '../train/draft';
import type { IJobView } from '../views';

/** `onChanged` gets the job as the server answers. */
export function Notes(props: { job: IJobView; onChanged: (job: IJobView) => void }): ReactElement {
  const { job } = props;
  const { api } = useEdt();
  const stored = { tags: (job.tags ?? []).join(', '), notes: job.notes ?? '' };
  const [draft, setDraft] = useState(stored);
  const [refused, setRefused] = useState({ field: '', text: '' });
  const [busy, setBusy] = useState(false);
  const changed = draft.tags !== stored.tags || draft.notes !== stored.notes;
  useEffect(() => setDraft(stored), [stored.tags, stored.notes]);

  const edit = (change: Partial<typeof draft>): void => {
    setRefused({ field: '', text: '' });
    setDraft(old => ({ ...old, ...change }));
  };
  const save = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      props.onChanged(await api.update(job.id, { tags: tagsOf(draft.tags), notes: draft.notes }));
    } catch (error) {
      const { message, hint, field } = explain(error);
      setRefused({ field, text: `${message} ${hint}`.trim() });
    } finally {
      setBusy(false);
    }
  };
  return (
    <details className="jp-edt-more" open={stored.tags !== '' || stored.notes !== '' || undefined}>
      <summary>Tags and notes</summary>
      <form className="jp-edt-controls" noValidate onSubmit={event => void save(event)} aria-label="Tags and notes">
        <Field label="Tags" hint="Words to find it by, separated by commas." error={refused.field === 'tags' ? refused.text : undefined}>
          {input => <input {...input} name="tags" value={draft.tags} onChange={event => edit({ tags: event.target.value })} />}
        </Field>
        <Field label="Notes" wide error={refused.field === 'tags' ? undefined : refused.text}>
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
