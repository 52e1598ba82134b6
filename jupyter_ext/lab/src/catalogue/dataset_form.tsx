/** One more data set: its name, and where its files are. */

import { useEffect, useReducer, useRef, useState } from 'react';
import type { ReactElement } from 'react';

import { useEdt } from '../page/surroundings';
import { BoxedForm, ChoiceField, TextField, WrongAnswer, useForm } from '../page/form';
import type { Answers } from '../page/form';
import { useShown } from '../page/shown';

import type { Chosen } from './chosen_files';
import { DropZone } from './drop_zone';
import { UploadProgress } from './upload_progress';
import type { Underway, Uploads } from './uploads';

const EMPTY: Answers = { name: '', type: '', description: '', where: 'source', source: '', path: '', files: '' };

/** The body of `POST /datasets`, but for the files of an upload. */
function body(answers: Answers): Record<string, unknown> {
  const said = (name: string): string => (answers[name] ?? '').trim();
  const where = said('where');
  const named = { name: said('name'), type: said('type'), description: said('description') };
  if (named.name === '') {
    throw new WrongAnswer('name', 'Give it a name.');
  }
  if (where === 'files') {
    return named;
  }
  const place = where === 'source' ? 'source' : 'path';
  if (said(place) === '') {
    throw new WrongAnswer(place, 'Say where its files are.');
  }
  return { ...named, [place]: said(place), ...(where === 'copy' ? { copy: true } : {}) };
}

/** `types` are those that the server knows. Opened while an upload is under way it is the form of that. */
export function DatasetForm(props: {
  types: readonly string[];
  uploads: Uploads;
  onDone: () => void;
  onCancel: () => void;
}): ReactElement {
  const { uploads } = props;
  const { api } = useEdt();
  const underway = useUnderway(uploads);
  const [chosen, setChosen] = useState<Chosen | null>(uploads.current?.chosen ?? null);
  const there = useRef(true);
  /** Until the upload has ended: well, stopped (the form stays), or with what is wrong. */
  const toItsEnd = async (done: Promise<boolean>): Promise<void> => {
    try {
      if (await done) {
        props.onDone();
      }
    } catch (error) {
      if (there.current) {
        uploads.forget(); // the form tells it
      }
      throw error;
    }
  };
  const form = useForm(
    uploads.current?.answers ?? { ...EMPTY, type: props.types[0] ?? 'Any' },
    async answers => {
      const spec = body(answers);
      if (answers['where'] !== 'files') {
        await api.request('datasets', {}, 'POST', spec);
        props.onDone();
      } else if (chosen === null || chosen.entries.length === 0) {
        throw new WrongAnswer('files', chosen === null ? 'Choose its files.' : 'There is no file in it.');
      } else {
        await toItsEnd(uploads.begin({ answers, spec, chosen }));
      }
    }
  );
  useEffect(() => {
    there.current = true;
    if (uploads.current !== null) {
      form.follow(toItsEnd(uploads.current.done));
    }
    return () => {
      there.current = false;
    };
  }, [uploads]);
  const choose = (files: Chosen): void => {
    setChosen(files);
    if ((form.answers['name'] ?? '') === '') {
      form.change('name', files.name);
    }
  };
  const where = form.answers['where'];
  return (
    <BoxedForm
      form={form}
      label="Add a data set"
      send="Add"
      sending="Adding …"
      onCancel={underway === null ? props.onCancel : undefined}
    >
      <TextField form={form} name="name" label="Name" hint="Letters, digits, dots, dashes, underscores." autoFocus />
      <ChoiceField form={form} name="type" label="Type" choices={props.types.map(type => [type, type])} hint="For people." />
      <ChoiceField
        form={form}
        name="where"
        label="Its files are"
        choices={[
          ['source', 'in the file browser (copied)'],
          ['files', 'on this computer (uploaded)'],
          ['path', "in the server's data folder (used there)"],
          ['copy', "in the server's data folder (copied)"]
        ]}
      />
      {where === 'source' && (
        <TextField form={form} name="source" label="Folder or file" hint="As the file browser shows it." placeholder="data/mnist" />
      )}
      {(where === 'path' || where === 'copy') && (
        <TextField form={form} name="path" label="Folder or file" hint="Below the server's data folder." placeholder="mnist" />
      )}
      {where === 'files' && (
        <DropZone
          chosen={chosen}
          error={form.wrong('files') ?? ''}
          disabled={form.busy}
          onChoose={choose}
        />
      )}
      <TextField form={form} name="description" label="Description" wide />
      {underway !== null && <UploadProgress of={underway} onStop={() => uploads.stop()} />}
    </BoxedForm>
  );
}

/** The upload as it is now, drawn anew when it is further; whoever looks is told of its end here. */
function useUnderway(uploads: Uploads): Underway | null {
  const [, again] = useReducer((n: number) => n + 1, 0);
  const shown = useShown();
  useEffect(() => {
    uploads.changed.connect(again);
    return () => {
      uploads.changed.disconnect(again);
    };
  }, [uploads]);
  useEffect(() => (shown ? uploads.watch() : undefined), [uploads, shown]);
  return uploads.current;
}
