/** One more data set: its name, and where its files are. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { useEdt } from '../page/surroundings';
import { BoxedForm, ChoiceField, TextField, WrongAnswer, useForm } from '../page/form';
import type { Answers } from '../page/form';

import type { Chosen } from './chosen_files';
import { UploadProgress, useUpload } from './dataset_upload';
import { DropZone } from './drop_zone';

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

/** `types` are those that the server knows. */
export function DatasetForm(props: {
  types: readonly string[];
  onDone: () => void;
  onCancel: () => void;
}): ReactElement {
  const { api } = useEdt();
  const upload = useUpload(api);
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const form = useForm(
    { name: '', type: props.types[0] ?? 'Any', description: '', where: 'source', source: '', path: '', files: '' },
    async answers => {
      const spec = body(answers);
      if (answers['where'] !== 'files') {
        await api.request('datasets', {}, 'POST', spec);
      } else if (chosen === null || chosen.entries.length === 0) {
        throw new WrongAnswer('files', chosen === null ? 'Choose its files.' : 'There is no file in it.');
      } else if (!(await upload.start(spec, chosen))) {
        return;
      }
      props.onDone();
    }
  );
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
      onCancel={upload.underway === null ? props.onCancel : undefined}
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
      {upload.underway !== null && <UploadProgress of={upload.underway} onStop={upload.stop} />}
    </BoxedForm>
  );
}
