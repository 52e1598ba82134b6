/** The form of a new deployment. */

import type { ReactElement } from 'react';

import { Forecast } from '../page/forecast';
import { BoxedForm, ChoiceField, TextField, WrongAnswer, useForm, whole } from '../page/form';
import type { Answers } from '../page/form';
import { usePreview } from '../page/previewed';
import { useEdt } from '../page/surroundings';
import type { IDeploymentView, IModelVersion } from '../catalogue_schemas';
import type { IForecast } from '../schemas';

/** `versions` are those that may be chosen, by name and the newest first; `version` is the one to begin with. */
export function DeploymentForm(props: {
  versions: readonly IModelVersion[];
  version: string;
  onCancel: () => void;
  onDone: (name: string) => void;
}): ReactElement {
  const { api } = useEdt();
  const choices = props.versions.map(({ name, number, aliases }) => {
    const also = aliases.map(alias => ` @${alias}`).join('');
    return [`${name}/${number}`, `${name}/${number}${also}`] as const;
  });
  const initial = {
    version: props.version || (choices[0]?.[0] ?? ''),
    name: '',
    least: '1',
    most: '1',
    priority: '10000',
    space: '',
    exact: 'off',
    public: 'off'
  };
  const form = useForm(initial, async answers => {
    const made = await api.request<IDeploymentView>('deployments', {}, 'POST', request(answers));
    props.onDone(made.name);
  });
  const preview = usePreview<IForecast>('previews/deployment', previewed(form.answers));
  return (
    <BoxedForm form={form} label="A new deployment" send="Deploy" sending="Deploying …" onCancel={props.onCancel}>
      <ChoiceField form={form} name="version" label="Version" choices={choices} />
      <TextField form={form} name="name" label="Name" hint="Part of its address. Empty for that of the version." />
      <TextField
        form={form}
        name="least"
        label="Replicas, at least"
        type="number"
        hint="Slots that it keeps. With 0 it gives up the last one without load."
      />
      <TextField
        form={form}
        name="most"
        label="Replicas, at most"
        type="number"
        hint="As many as the load needs. Trainings give slots up at the end of an update, and stay exact."
      />
      <TextField form={form} name="priority" label="Priority" type="number" hint="A training has 5000." />
      <TextField form={form} name="space" label="Space" hint="A word to group by, such as production." />
      <ChoiceField
        form={form}
        name="exact"
        label="Answers"
        choices={[
          ['off', 'as fast as they can be'],
          ['on', 'with the same bits under every load']
        ]}
      />
      <ChoiceField
        form={form}
        name="public"
        label="Who may call it"
        choices={[
          ['off', 'callers with a key'],
          ['on', 'everybody who can reach this server']
        ]}
      />
      <div className={preview.fresh ? 'jp-edt-preview' : 'jp-edt-preview jp-mod-stale'}>
        {preview.value !== null && <Forecast text={preview.value.text} />}
      </div>
    </BoxedForm>
  );
}

/** The body of a new deployment. WrongAnswer where a field has none. */
function request(answers: Answers): Record<string, unknown> {
  const [least, most] = [whole(answers, 'least', 0), whole(answers, 'most', 1)];
  if (most < least) {
    throw new WrongAnswer('most', `Give at least ${least}.`);
  }
  return {
    version: answers['version'],
    name: answers['name'],
    replicas: [least, most],
    priority: whole(answers, 'priority', 1),
    space: answers['space'],
    exact: answers['exact'] === 'on',
    public: answers['public'] === 'on'
  };
}

/** The part of it that decides about slots, as JSON; "" while something in it is wrong. */
function previewed(answers: Answers): string {
  try {
    const { version, replicas, priority } = request(answers);
    return JSON.stringify({ version, replicas, priority });
  } catch {
    return '';
  }
}
