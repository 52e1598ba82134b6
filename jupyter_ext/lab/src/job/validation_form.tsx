/** How a trained model is tested: which metrics, over which data, on how many workers. */

import type { ReactElement } from 'react';

import { enc } from '../api';
import { BoxedForm, ChecksField, ChoiceField, TextField, WrongAnswer, useForm, whole } from '../page/form';
import { usePolled } from '../page/polled';
import { useEdt } from '../page/surroundings';
import type { IJobView } from '../views';

import { METRICS, likely } from './metric_words';
import type { INewValidation } from './validation_answers';

/** `onStarted` gets the job that does it. */
export function ValidationForm(props: {
  job: IJobView;
  onStarted: (validation: IJobView) => void;
  onCancel?: (() => void) | undefined;
}): ReactElement {
  const { job } = props;
  const { api, jobs } = useEdt();
  const choices = usePolled(
    'data sets and groups',
    async () => {
      const [sets, info] = await Promise.all([
        api.request<{ datasets: { name: string }[] }>('datasets', { no_track_activity: 1 }),
        api.info()
      ]);
      return { datasets: sets.datasets.map(each => each.name), groups: info.instance_groups };
    },
    null
  );
  const form = useForm(
    { metrics: likely(job).join(), threshold: '', dataset: '', max_workers: '1', instance_group: '' },
    async answers => {
      const started = await api.request<IJobView>(`jobs/${enc(job.id)}/validations`, {}, 'POST', body(answers));
      jobs.put(started);
      props.onStarted(started);
    }
  );
  const others = (names: readonly string[], own: string): [string, string][] => [
    ['', own === '' ? "the training's" : `${own} (the training's)`],
    ...names.filter(name => name !== own).map((name): [string, string] => [name, name])
  ];
  return (
    <BoxedForm
      form={form}
      label={`Validate ${job.name}`}
      send="Validate"
      sending="Submitting …"
      onCancel={props.onCancel}
    >
      <ChecksField form={form} name="metrics" label="Metrics" choices={METRICS} />
      <ChoiceField
        form={form}
        name="dataset"
        label="Data set"
        choices={others(choices.value?.datasets ?? [], job.dataset)}
        hint="The script finds its folder in DATA_DIR."
      />
      <TextField form={form} name="max_workers" label="Maximum workers" type="number" min={1} hint="The numbers are the same for any." />
      <ChoiceField
        form={form}
        name="instance_group"
        label="Instance group"
        choices={others(choices.value?.groups ?? [], job.instance_group)}
      />
      <TextField
        form={form}
        name="threshold"
        label="Threshold"
        placeholder="0.5"
        inputMode="decimal"
        hint="Binary outputs only: class 1 from there on."
      />
    </BoxedForm>
  );
}

function body(answers: Record<string, string>): INewValidation {
  const metrics = (answers['metrics'] ?? '').split(',').filter(name => name !== '');
  if (metrics.length === 0) {
    throw new WrongAnswer('metrics', 'Choose at least one.');
  }
  const said = (answers['threshold'] ?? '').trim();
  if (said !== '' && !Number.isFinite(Number(said))) {
    throw new WrongAnswer('threshold', 'Give a number between 0 and 1, such as 0.5.');
  }
  return {
    metrics,
    threshold: said === '' ? null : Number(said),
    dataset: answers['dataset'] || null,
    max_workers: whole(answers, 'max_workers', 1),
    instance_group: answers['instance_group'] || null
  };
}
