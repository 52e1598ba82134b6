/** One resource group, a new one or one there is: its hosts, and how many slots each offers. */

import { useEffect, useRef } from 'react';
import type { ReactElement } from 'react';

import type { Api } from '../api';
import { useEdt } from '../page/surroundings';
import { BoxedForm, ChoiceField, TextField, WrongAnswer, useForm } from '../page/form';
import type { Answers } from '../page/form';
import type { ICluster } from '../views';

import type { IResourceGroup } from './answers';
import { foreseen, hostsOf } from './resource_change';

/** The whole plan, and the version that a change of it is made from. */
interface Plan {
  readonly version: string;
  readonly plan: { readonly resource_groups: readonly IResourceGroup[]; readonly instance_groups: readonly unknown[] };
}

async function readPlan(api: Api): Promise<Plan> {
  const response = await api.fetch('plan');
  return { version: response.headers.get('ETag') ?? '*', plan: (await response.json()) as Plan['plan'] };
}

/** Put the group into the plan in place of the one of its name; refused where the plan has changed since it was read. */
async function replace(api: Api, { plan, version }: Plan, group: IResourceGroup): Promise<void> {
  const resource_groups = plan.resource_groups.map(each => (each.name === group.name ? group : each));
  await api.fetch('plan', {}, 'PUT', { ...plan, resource_groups }, { 'If-Match': version });
}

function group(answers: Answers): IResourceGroup {
  const said = (name: string): string => (answers[name] ?? '').trim();
  return { name: said('name'), hosts: hostsOf(said('hosts')), slots: said('slots'), portable: said('portable') === 'on' };
}

/** `of` null for a new one. */
export function ResourceForm(props: {
  of: IResourceGroup | null;
  all: readonly IResourceGroup[];
  cluster: ICluster;
  onDone: () => void;
  onCancel: () => void;
}): ReactElement {
  const { api } = useEdt();
  const { of } = props;
  // As it was when the form was opened: what somebody else has changed since is not to be overwritten.
  const read = useRef<Promise<Plan> | null>(null);
  useEffect(() => {
    read.current = of === null ? null : readPlan(api);
    read.current?.catch(() => undefined); // told when it is needed
  }, [api, of?.name]);
  const form = useForm(
    { name: of?.name ?? '', hosts: of?.hosts.join(', ') ?? '', slots: of?.slots ?? '', portable: of?.portable ? 'on' : 'off' },
    async answers => {
      const wanted = group(answers);
      if (wanted.name === '') {
        throw new WrongAnswer('name', 'Give it a name.');
      }
      if (of === null) {
        await api.request('resource-groups', {}, 'POST', wanted);
      } else {
        await replace(api, await (read.current ?? readPlan(api)), wanted);
      }
      props.onDone();
    }
  );
  const title = of === null ? 'Add a resource group' : `Change the resource group ${of.name}`;
  const hosts = [...new Set(props.cluster.slots.map(slot => slot.host))];
  return (
    <BoxedForm
      form={form}
      label={title}
      send={of === null ? 'Add' : 'Change'}
      sending="Changing …"
      onCancel={props.onCancel}
    >
      {of === null && <TextField form={form} name="name" label="Name" autoFocus />}
      <TextField
        form={form}
        name="hosts"
        label="Hosts"
        hint={`Empty for every host that no other group names.${hosts.length > 0 ? ` There are ${hosts.join(', ')}.` : ''}`}
      />
      <TextField
        form={form}
        name="slots"
        label="Slots of each host"
        hint="ngpus, ncpus, one of them * or / a whole number, or a number; empty for what it offers."
        placeholder="ngpus"
      />
      <ChoiceField
        form={form}
        name="portable"
        label="Portable"
        hint="Jobs use only instructions that all processors have: slower, on hosts that differ."
        choices={[
          ['off', 'off'],
          ['on', 'on']
        ]}
      />
      <div className="jp-edt-standing" role="status" data-said="foreseen">
        {foreseen(props.cluster, props.all, of, group(form.answers)).join(' ')}
      </div>
    </BoxedForm>
  );
}
