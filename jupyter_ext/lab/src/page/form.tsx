/**
 * A short form: answers as text, sent at once, and what the server says is wrong told at the field it is about. Longer
 * ones with a rhythm of their own (the train form) do without.
 */

import { useState } from 'react';
import type { FormEvent, InputHTMLAttributes, ReactElement, ReactNode } from 'react';

import { explain } from './explain';
import { Field } from './field';

/** Answers by name. */
export type Answers = Record<string, string>;

/** An answer that cannot be sent, found before it is. */
export class WrongAnswer extends Error {
  constructor(
    readonly field: string,
    message: string
  ) {
    super(message);
  }
}

/** A form's state. */
export interface FormState {
  readonly answers: Answers;
  readonly busy: boolean;
  /** What is wrong that no field of the form is about; "" for nothing. */
  readonly elsewhere: string;
  readonly wrong: (name: string) => string | undefined;
  readonly change: (name: string, value: string) => void;
  readonly submit: (event: FormEvent) => void;
  /** Take something that is under way for what this form has sent. */
  readonly follow: (sent: Promise<void>) => void;
}

/** `send` throws what is wrong: a WrongAnswer, or what the server said. */
export function useForm(initial: Answers, send: (answers: Answers) => Promise<void>): FormState {
  const [answers, setAnswers] = useState(initial);
  const [busy, setBusy] = useState(false);
  const [refused, setRefused] = useState({ field: '', text: '' });
  const known = refused.field in answers;
  const follow = async (sent: Promise<void>): Promise<void> => {
    setBusy(true);
    setRefused({ field: '', text: '' });
    try {
      await sent;
    } catch (error) {
      const { message, hint, field } = explain(error);
      const where = error instanceof WrongAnswer ? error.field : field;
      setRefused({ field: where, text: `${message} ${hint}`.trim() });
    } finally {
      setBusy(false);
    }
  };
  return {
    answers,
    busy,
    elsewhere: known ? '' : refused.text,
    wrong: name => (known && refused.field === name ? refused.text : undefined),
    change: (name, value) => {
      setAnswers(old => ({ ...old, [name]: value }));
      setRefused(old => (old.field === name ? { field: '', text: '' } : old));
    },
    submit: event => {
      event.preventDefault();
      if (!busy) {
        void follow(send(answers));
      }
    },
    follow: sent => void follow(sent)
  };
}

/** A line of text, or a number with `type="number"`. */
export function TextField(
  props: {
    form: FormState;
    name: string;
    label: string;
    hint?: ReactNode;
    wide?: boolean;
  } & Omit<InputHTMLAttributes<HTMLInputElement>, 'form' | 'name' | 'value' | 'onChange'>
): ReactElement {
  const { form, name, label, hint, wide, ...input } = props;
  return (
    <Field label={label} hint={hint} wide={wide ?? false} error={form.wrong(name)}>
      {attributes => (
        <input
          autoComplete="off"
          spellCheck={false}
          {...input}
          {...attributes}
          name={name}
          value={form.answers[name] ?? ''}
          onChange={event => form.change(name, event.target.value)}
        />
      )}
    </Field>
  );
}

/** One of some `[value, label]` choices. */
export function ChoiceField(props: {
  form: FormState;
  name: string;
  label: string;
  hint?: ReactNode;
  choices: readonly (readonly [string, string])[];
}): ReactElement {
  const { form, name } = props;
  return (
    <Field label={props.label} hint={props.hint} error={form.wrong(name)}>
      {attributes => (
        <select
          {...attributes}
          name={name}
          value={form.answers[name] ?? ''}
          onChange={event => form.change(name, event.target.value)}
        >
          {props.choices.map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** Some of `[value, label]` choices, kept with commas between them in the order in which they are offered. */
export function ChecksField(props: {
  form: FormState;
  name: string;
  label: string;
  choices: readonly (readonly [string, string])[];
}): ReactElement {
  const { form, name, choices } = props;
  const chosen = (form.answers[name] ?? '').split(',');
  const wrong = form.wrong(name) ?? '';
  const toggle = (value: string): void => {
    const kept = choices.filter(([each]) => chosen.includes(each) !== (each === value));
    form.change(name, kept.map(([each]) => each).join());
  };
  return (
    <fieldset className={`jp-edt-choice jp-mod-wide${wrong === '' ? '' : ' jp-mod-wrong'}`}>
      <legend>{props.label}</legend>
      {choices.map(([value, label]) => (
        <label key={value}>
          <input type="checkbox" name={name} checked={chosen.includes(value)} onChange={() => toggle(value)} /> {label}
        </label>
      ))}
      <span className="jp-edt-field-error" role="alert">
        {wrong === '' ? '' : `✕ ${wrong}`}
      </span>
    </fieldset>
  );
}

/** A form in a box of its own, with its buttons; `label` says what it is for. */
export function BoxedForm(props: {
  form: FormState;
  label: string;
  send: string;
  sending: string;
  onCancel?: (() => void) | undefined;
  children: ReactNode;
}): ReactElement {
  const { form, label, children, ...end } = props;
  return (
    <form className="jp-edt-fields jp-edt-boxed" onSubmit={form.submit} noValidate aria-label={label}>
      {children}
      <FormEnd form={form} {...end} />
    </form>
  );
}

/** The buttons below, and what is wrong that belongs to no field. */
function FormEnd(props: {
  form: FormState;
  send: string;
  sending: string;
  onCancel?: (() => void) | undefined;
}): ReactElement {
  const { form } = props;
  return (
    <div className="jp-edt-form-end">
      <button type="submit" className="jp-edt-button jp-mod-accept" disabled={form.busy}>
        {form.busy ? props.sending : props.send}
      </button>
      {props.onCancel !== undefined && (
        <button type="button" className="jp-edt-button" onClick={props.onCancel}>
          Cancel
        </button>
      )}
      <span className="jp-edt-field-error" role="alert">
        {form.elsewhere === '' ? '' : `✕ ${form.elsewhere}`}
      </span>
    </div>
  );
}

/** A whole number, or a WrongAnswer at its field. */
export function whole(answers: Answers, name: string, least: number): number {
  const text = (answers[name] ?? '').trim();
  const value = Number(text);
  if (text === '' || !Number.isInteger(value) || value < least) {
    throw new WrongAnswer(name, `Give a whole number of at least ${least}.`);
  }
  return value;
}

/** The same for an answer that may be left out: null then. */
export function wholeOrNone(answers: Answers, name: string, least: number): number | null {
  return (answers[name] ?? '').trim() === '' ? null : whole(answers, name, least);
}
