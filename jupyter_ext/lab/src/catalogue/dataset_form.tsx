/** One more data set: its name, and where its files are. */

import type { ReactElement } from 'react';

import { useEdt } from '../page/edt';
import { ChoiceField, FormEnd, TextField, WrongAnswer, useForm } from '../page/form';
import type { Answers } from '../page/form';

/** The body of `POST /datasets`. */
function body(answers: Answers): Record<string, unknown> {
  const said = (name: string): string => (answers[name] ?? '').trim();
  const where = said('where');
  const place = where === 'source' ? 'source' : 'path';
  if (said('name') === '') {
    throw new WrongAnswer('name', 'Give it a name.');
  }
  if (said(place) === '') {
    throw new WrongAnswer(place, 'Say where its files are.');
  }
  return {
    name: said('name'),
    type: said('type'),
    description: said('description'),
    [place]: said(place),
    ...(where === 'copy' ? { copy: true } : {})
  };
}

/** `types` are those that the server knows. */
export function DatasetForm(props: {
  types: readonly string[];
  onDone: () => void;
  onCancel: () => void;
}): ReactElement {
  const { api } = useEdt();
  const form = useForm(
    { name: '', type: props.types[0] ?? 'Any', description: '', where: 'source', source: '', path: '' },
    async answers => {
      await api.request('datasets', {}, 'POST', body(answers));
      props.onDone();
    }
  );
  const own = form.answers['where'] === 'source';
  return (
    <form className="jp-edt-fields jp-edt-boxed" onSubmit={form.submit} noValidate aria-label="Add a data set">
      <TextField form={form} name="name" label="Name" hint="Letters, digits, dots, dashes, underscores." autoFocus />
      <ChoiceField form={form} name="type" label="Type" choices={props.types.map(type => [type, type])} hint="For people." />
      <ChoiceField
        form={form}
        name="where"
        label="Its files are"
        choices={[
          ['source', 'in the file browser (copied)'],
          ['path', "in the server's data folder (used there)"],
          ['copy', "in the server's data folder (copied)"]
        ]}
      />
      {own ? (
        <TextField form={form} name="source" label="Folder or file" hint="As the file browser shows it." placeholder="data/mnist" />
      ) : (
        <TextField form={form} name="path" label="Folder or file" hint="Below the server's data folder." placeholder="mnist" />
      )}
      <TextField form={form} name="description" label="Description" wide />
      <FormEnd form={form} send="Add" sending="Adding …" onCancel={props.onCancel} />
    </form>
  );
}
