/**
 * Priority, maximum workers and instance group of a living job. What a change would do is said before it is made; Enter or
 * "Apply" makes it, at once, and Escape takes the input back.
 */

import { useEffect, useRef, useState } from 'react';
import type { FormEvent, KeyboardEvent, ReactElement } from 'react';

import { enc } from '../api';
import { useEdt } from '../page/surroundings';
import { explain } from '../page/explain';
import { Field } from '../page/field';
import type { IJobPatch, IJobView } from '../views';

import type { IWhatIf } from './answers';
import { whatIfText } from './what_if_text';

const PAUSE = 250;

interface Wanted {
  priority: string;
  max_workers: string;
  instance_group: string;
}

function asIs(job: IJobView): Wanted {
  return {
    priority: String(job.priority),
    max_workers: String(job.max_workers),
    instance_group: job.instance_group
  };
}

/** What differs, or the field that cannot be so. */
function patchOf(wanted: Wanted, job: IJobView): { patch: IJobPatch; wrong: Partial<Record<keyof Wanted, string>> } {
  const patch: IJobPatch = {};
  const wrong: Partial<Record<keyof Wanted, string>> = {};
  for (const name of ['priority', 'max_workers'] as const) {
    const value = Number(wanted[name]);
    if (!Number.isInteger(value) || value < 1) {
      wrong[name] = 'Give a whole number of at least 1.';
    } else if (value !== job[name]) {
      patch[name] = value;
    }
  }
  if (wanted.instance_group !== job.instance_group) {
    patch.instance_group = wanted.instance_group;
  }
  return { patch, wrong };
}

/** `groups`: those that jobs may be in. `onChanged` gets the job as it is then, `onForecast` when the training ends without the change that is typed in. */
export function Controls(props: {
  job: IJobView;
  groups: readonly string[];
  onChanged: (job: IJobView) => void;
  onForecast: (ends: number | null) => void;
}): ReactElement {
  const { job } = props;
  const { api } = useEdt();
  const [wanted, setWanted] = useState<Wanted>(asIs(job));
  const [said, setSaid] = useState('');
  const [refused, setRefused] = useState<{ field: string; text: string }>({ field: '', text: '' });
  const [busy, setBusy] = useState(false);
  const { patch, wrong } = patchOf(wanted, job);
  const changed = Object.keys(patch).length > 0;
  const fits = Object.keys(wrong).length === 0;
  const edited = changed || !fits;

  // Somebody else's change shows, unless this person is about to make their own.
  const touched = useRef(false);
  useEffect(() => {
    if (!touched.current) {
      setWanted(asIs(job));
    }
  }, [job.priority, job.max_workers, job.instance_group]);

  const question = changed && fits ? JSON.stringify(patch) : '';
  // Before the first update no end can be forecast, so that what was asked then is asked again.
  const measured = (job.progress?.update ?? 0) > 0;
  useEffect(() => {
    setRefused({ field: '', text: '' });
    if (question === '') {
      setSaid('');
      props.onForecast(null);
      return;
    }
    let over = false;
    const timer = window.setTimeout(() => {
      const query = JSON.parse(question) as Record<string, string | number>;
      api
        .request<IWhatIf>(`jobs/${enc(job.id)}/what-if`, query)
        .then(answer => {
          if (!over) {
            setSaid(whatIfText(answer, Date.now() / 1000));
            props.onForecast(answer.ends_now);
          }
        })
        .catch((error: unknown) => {
          const { message, hint, field } = explain(error);
          if (!over) {
            setSaid('');
            props.onForecast(null);
            setRefused({ field, text: `${message} ${hint}`.trim() });
          }
        });
    }, PAUSE);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [question, measured, job.id, api]);

  const change = (name: keyof Wanted, value: string): void => {
    touched.current = true;
    setWanted(old => ({ ...old, [name]: value }));
  };
  const undo = (): void => {
    touched.current = false;
    setWanted(asIs(job));
  };
  const apply = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (!changed || !fits || busy) {
      return;
    }
    setBusy(true);
    try {
      const now = await api.update(job.id, patch);
      touched.current = false;
      setWanted(asIs(now));
      setSaid('');
      props.onChanged(now);
    } catch (error) {
      const { message, hint, field } = explain(error);
      setRefused({ field, text: `${message} ${hint}`.trim() });
    } finally {
      setBusy(false);
    }
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === 'Escape' && edited) {
      event.stopPropagation();
      undo();
    }
  };
  const at = (name: keyof Wanted): string | undefined => wrong[name] ?? (refused.field === name ? refused.text : undefined);
  const elsewhere = refused.text !== '' && !(refused.field in wanted);
  return (
    <form
      className="jp-edt-controls"
      noValidate
      onSubmit={event => void apply(event)} onKeyDown={onKey} aria-label="Change this job">
      <Field label="Priority" error={at('priority')}>
        {input => (
          <input
            {...input}
            type="number"
            min={0}
            step={500}
            name="priority"
            value={wanted.priority}
            onChange={event => change('priority', event.target.value)}
          />
        )}
      </Field>
      <Field label="Maximum workers" error={at('max_workers')}>
        {input => (
          <input
            {...input}
            type="number"
            min={job.slots_per_unit}
            step={job.slots_per_unit}
            name="max_workers"
            value={wanted.max_workers}
            onChange={event => change('max_workers', event.target.value)}
          />
        )}
      </Field>
      <Field label="Instance group" error={at('instance_group')}>
        {input => (
          <select
            {...input}
            name="instance_group"
            value={wanted.instance_group}
            onChange={event => change('instance_group', event.target.value)}
          >
            {[...new Set([...props.groups, job.instance_group])].map(name => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
      </Field>
      <div className="jp-edt-controls-end">
        <button type="submit" className="jp-edt-button jp-mod-accept" disabled={!changed || !fits || busy}>
          {busy ? 'Applying …' : 'Apply'}
        </button>
        <button type="button" className="jp-edt-button" disabled={!edited || busy} onClick={undo}>
          Undo
        </button>
      </div>
      <p className="jp-edt-what-if" role="status" data-said={said !== ''}>
        {elsewhere && <span className="jp-edt-field-error">✕ {refused.text}</span>}
        {!elsewhere && (said !== '' ? said : changed && fits && refused.text === '' ? 'What that would do is looked up …' : '')}
      </p>
    </form>
  );
}
