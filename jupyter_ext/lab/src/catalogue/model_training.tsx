/** How a model is trained this time: the engine, the data set, how many workers; what is not said is as the model says. */

import type { ReactElement } from 'react';

import { enc } from '../api';
import { CommandIDs } from '../commands';
import { useEdt } from '../page/surroundings';
import { BoxedForm, ChoiceField, TextField, useForm, whole } from '../page/form';
import { usePolled } from '../page/polled';
import { line } from '../train/words';
import type { IJobView } from '../views';

import type { IModel } from './answers';
import { hyperparametersOf } from './hyperparameters';
import { argsOf } from './model_form';

/** Opens the job when it is submitted. */
export function ModelTraining(props: {
  model: IModel;
  frameworks: readonly string[];
  datasets: readonly string[];
  onCancel: () => void;
}): ReactElement {
  const { model } = props;
  const { api, commands, jobs } = useEdt();
  const info = usePolled('info', () => api.info(), null);
  const form = useForm(
    {
      framework: model.framework,
      dataset: model.dataset,
      max_workers: String(model.max_workers),
      priority: '5000',
      instance_group: '',
      project: '',
      experiment: '',
      args: line(model.args),
      hyperparameters: Object.entries(model.hyperparameters)
        .map(([name, value]) => `${name}=${JSON.stringify(value)}`)
        .join(', ')
    },
    async answers => {
      const job = await api.request<IJobView>(`models/${enc(model.name)}/train`, {}, 'POST', {
        framework: answers['framework'],
        dataset: answers['dataset'],
        max_workers: whole(answers, 'max_workers', 1),
        priority: whole(answers, 'priority', 1),
        instance_group: answers['instance_group'],
        project: answers['project'],
        experiment: answers['experiment'],
        args: argsOf(answers),
        hyperparameters: hyperparametersOf(answers['hyperparameters'] ?? '')
      });
      jobs.put(job);
      props.onCancel();
      await commands.execute(CommandIDs.openJob, { id: job.id, name: job.name });
    }
  );
  const groups = info.value?.instance_groups ?? [];
  return (
    <section aria-label={`Train ${model.name}`}>
      <h3>Train {model.name}</h3>
      <BoxedForm
        form={form}
        label={`Train ${model.name}`}
        send="Start training"
        sending="Submitting …"
        onCancel={props.onCancel}
      >
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
        <TextField form={form} name="priority" label="Priority" type="number" min={0} step={500} />
        <ChoiceField
          form={form}
          name="instance_group"
          label="Instance group"
          choices={[
            ['', groups[0] === undefined ? 'the first' : `${groups[0]} (the first)`],
            ...groups.slice(1).map(name => [name, name] as const)
          ]}
        />
        <TextField form={form} name="project" label="Project" hint="What its runs are compared in; empty for none." />
        <TextField form={form} name="experiment" label="Experiment" hint="The runs of the project that belong together." />
        <TextField form={form} name="args" label="Arguments" wide />
        <TextField form={form} name="hyperparameters" label="Hyper-parameters" wide />
      </BoxedForm>
    </section>
  );
}
