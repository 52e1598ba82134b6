/** One more model: its name, where its code is, and what it is trained with. */

import type { ReactElement } from 'react';

import { useEdt } from '../page/surroundings';
import { BoxedForm, ChoiceField, TextField, WrongAnswer, useForm, whole } from '../page/form';
import type { Answers } from '../page/form';
import { UnclosedQuote, words } from '../train/words';

import { hyperparametersOf } from './hyperparameters';

/** The arguments of a line of text; a WrongAnswer for a quote that is not closed. */
export function argsOf(answers: Answers): string[] {
  try {
    return words(answers['args'] ?? '');
  } catch (error) {
    if (error instanceof UnclosedQuote) {
      throw new WrongAnswer('args', error.message);
    }
    throw error;
  }
}

/** The body of `POST /models`; what is empty is left to the server. */
function body(answers: Answers): Record<string, unknown> {
  const said = (name: string): string => (answers[name] ?? '').trim();
  const where = said('where');
  if (said('name') === '') {
    throw new WrongAnswer('name', 'Give it a name.');
  }
  if (said(where) === '') {
    throw new WrongAnswer(where, where === 'template' ? 'Choose a model.' : 'Say where its code is.');
  }
  const args = argsOf(answers);
  const hyperparameters = hyperparametersOf(said('hyperparameters'));
  return {
    name: said('name'),
    [where]: said(where),
    framework: said('framework'),
    max_workers: whole(answers, 'max_workers', 1),
    ...(said('description') === '' ? {} : { description: said('description') }),
    ...(said('main') === '' ? {} : { main: said('main') }),
    ...(said('dataset') === '' ? {} : { dataset: said('dataset') }),
    ...(args.length === 0 ? {} : { args }),
    ...(Object.keys(hyperparameters).length === 0 ? {} : { hyperparameters })
  };
}

/** `templates` are models whose code it may take. */
export function ModelForm(props: {
  frameworks: readonly string[];
  hyperparameters: readonly string[];
  datasets: readonly string[];
  templates: readonly string[];
  onDone: () => void;
  onCancel: () => void;
}): ReactElement {
  const { api } = useEdt();
  const form = useForm(
    {
      name: '',
      where: 'source',
      source: '',
      path: '',
      template: props.templates[0] ?? '',
      main: '',
      framework: props.frameworks[0] ?? 'edtPyTorch',
      dataset: '',
      max_workers: '4',
      args: '',
      hyperparameters: '',
      description: ''
    },
    async answers => {
      await api.request('models', {}, 'POST', body(answers));
      props.onDone();
    }
  );
  const where = form.answers['where'];
  return (
    <BoxedForm
      form={form}
      label="Add a model"
      send="Add"
      sending="Adding …"
      onCancel={props.onCancel}
    >
      <TextField form={form} name="name" label="Name" hint="Letters, digits, dots, dashes, underscores." autoFocus />
      <ChoiceField
        form={form}
        name="where"
        label="Its code is"
        choices={[
          ['source', 'in the file browser'],
          ['path', "in the server's data folder"],
          ...(props.templates.length > 0 ? ([['template', 'that of a model there is']] as const) : [])
        ]}
      />
      {where === 'source' && (
        <TextField
          form={form}
          name="source"
          label="Folder, script or notebook"
          hint="As the file browser shows it."
          placeholder="project"
        />
      )}
      {where === 'path' && (
        <TextField form={form} name="path" label="Folder or script" hint="Below the data folder." placeholder="project" />
      )}
      {where === 'template' && (
        <ChoiceField form={form} name="template" label="Model" choices={props.templates.map(name => [name, name])} />
      )}
      <TextField form={form} name="main" label="Main file" hint="Needed only where more than one can be meant." />
      <ChoiceField
        form={form}
        name="framework"
        label="Training engine"
        choices={props.frameworks.map(name => [name, name])}
      />
      <ChoiceField
        form={form}
        name="dataset"
        label="Data set"
        choices={[['', 'none'], ...props.datasets.map(name => [name, name] as const)]}
      />
      <TextField form={form} name="max_workers" label="Maximum workers" type="number" min={1} />
      <TextField form={form} name="args" label="Arguments" placeholder="--epochs 5" wide />
      <TextField
        form={form}
        name="hyperparameters"
        label="Hyper-parameters"
        hint={`name=value, with commas between: ${props.hyperparameters.join(', ')}.`}
        placeholder="epochs=5, train_batch_size=64"
        wide
      />
      <TextField form={form} name="description" label="Description" wide />
    </BoxedForm>
  );
}
