/** One instance group, a new one or one there is: policy, preemption, shares and loans. */

import type { ReactElement } from 'react';

import { enc } from '../api';
import { useEdt } from '../page/surroundings';
import { BoxedForm, ChoiceField, TextField, WrongAnswer, useForm, whole, wholeOrNone } from '../page/form';
import type { Answers } from '../page/form';
import { POLICIES } from '../policies';

import type { IInstanceGroup, IResourceGroup } from './answers';

const NEW: IInstanceGroup = {
  name: '',
  resource_group: 'default',
  parent: '',
  policy: 'fairshare',
  preemption: true,
  share: 1,
  own: 0,
  lend: null,
  borrow: null,
  user_shares: null,
  throughput_aware: false,
  quantum: 60,
  pending_timeout: null,
  max_priority: 10000,
  max_waiting: null,
  max_running: null,
  max_bytes: null,
  user_waiting: null,
  user_running: null,
  user_slots: null,
  user_bytes: null
};

/** The quotas of a group, each with its label. */
const QUOTAS = [
  ['max_waiting', 'Waiting jobs', 'Of all users'],
  ['max_running', 'Running jobs', 'Of all users'],
  ['max_bytes', 'Bytes stored', 'Of all users'],
  ['user_waiting', 'Waiting jobs of a user', 'Of each user'],
  ['user_running', 'Running jobs of a user', 'Of each user'],
  ['user_slots', 'Slots of a user', 'Of each user'],
  ['user_bytes', 'Bytes stored by a user', 'Of each user']
] as const;
type Quotas = Pick<IInstanceGroup, (typeof QUOTAS)[number][0]>;

function seconds(answers: Answers, name: string): number {
  const value = Number(answers[name]);
  if (!(value > 0)) {
    throw new WrongAnswer(name, 'Give a number of seconds above 0.');
  }
  return value;
}

/** What the answers say of a group, without its name. */
function body(answers: Answers): Omit<IInstanceGroup, 'name' | 'user_shares'> {
  return {
    resource_group: answers['resource_group'] ?? 'default',
    parent: answers['parent'] ?? '',
    policy: (answers['policy'] ?? 'fairshare') as IInstanceGroup['policy'],
    preemption: answers['preemption'] === 'on',
    share: whole(answers, 'share', 1),
    own: whole(answers, 'own', 0),
    lend: wholeOrNone(answers, 'lend', 0),
    borrow: wholeOrNone(answers, 'borrow', 0),
    throughput_aware: answers['throughput_aware'] === 'on',
    quantum: seconds(answers, 'quantum'),
    pending_timeout: (answers['pending_timeout'] ?? '').trim() === '' ? null : seconds(answers, 'pending_timeout'),
    max_priority: whole(answers, 'max_priority', 1),
    ...(Object.fromEntries(QUOTAS.map(([name]) => [name, wholeOrNone(answers, name, 1)])) as unknown as Quotas)
  };
}

/** `group` null for a new one. */
export function GroupForm(props: {
  group: IInstanceGroup | null;
  groups: readonly IInstanceGroup[];
  resources: readonly IResourceGroup[];
  onDone: () => void;
  onCancel: () => void;
}): ReactElement {
  const { api } = useEdt();
  const { group } = props;
  const from = group ?? { ...NEW, resource_group: props.resources[0]?.name ?? NEW.resource_group };
  const text = (value: number | null): string => (value === null ? '' : String(value));
  const form = useForm(
    {
      name: from.name,
      policy: from.policy,
      preemption: from.preemption ? 'on' : 'off',
      resource_group: from.resource_group,
      parent: from.parent,
      share: String(from.share),
      own: String(from.own),
      lend: text(from.lend),
      borrow: text(from.borrow),
      throughput_aware: from.throughput_aware ? 'on' : 'off',
      quantum: String(from.quantum),
      pending_timeout: text(from.pending_timeout),
      max_priority: String(from.max_priority),
      ...Object.fromEntries(QUOTAS.map(([name]) => [name, text(from[name])]))
    },
    async answers => {
      const changes = body(answers);
      if (group === null) {
        const name = (answers['name'] ?? '').trim();
        if (name === '') {
          throw new WrongAnswer('name', 'Give it a name.');
        }
        await api.request('instance-groups', {}, 'POST', { name, ...changes });
      } else {
        await api.request(`instance-groups/${enc(group.name)}`, {}, 'PATCH', changes);
      }
      props.onDone();
    }
  );
  const title = group === null ? 'Add an instance group' : `Change ${group.name}`;
  const parents = props.groups.filter(each => each.name !== group?.name).map(each => each.name);
  return (
    <BoxedForm
      form={form}
      label={title}
      send={group === null ? 'Add' : 'Change'}
      sending="Changing …"
      onCancel={props.onCancel}
    >
      {group === null && <TextField form={form} name="name" label="Name" autoFocus />}
      <ChoiceField
        form={form}
        name="policy"
        label="Policy"
        hint="How its jobs divide its slots."
        choices={POLICIES}
      />
      <ChoiceField
        form={form}
        name="preemption"
        label="Preemption"
        hint="Take slots back from jobs that run."
        choices={[
          ['on', 'on'],
          ['off', 'off']
        ]}
      />
      <ChoiceField
        form={form}
        name="resource_group"
        label="Resource group"
        hint="Whose slots it divides."
        choices={props.resources.map(each => [each.name, each.name])}
      />
      <ChoiceField
        form={form}
        name="parent"
        label="Part of"
        choices={[['', 'no other group'], ...parents.map(name => [name, name] as const)]}
      />
      <TextField form={form} name="share" label="Share" type="number" min={1} hint="Weight against the groups beside it." />
      <TextField form={form} name="own" label="Own slots" type="number" min={0} hint="Its own whenever it can use them." />
      <TextField form={form} name="lend" label="Lends at most" type="number" min={0} hint="Own slots; empty for all." />
      <TextField form={form} name="borrow" label="Borrows at most" type="number" min={0} hint="Slots; empty for no limit." />
      <ChoiceField
        form={form}
        name="throughput_aware"
        label="By measured speed"
        hint="Slots go where they speed up most."
        choices={[
          ['off', 'off'],
          ['on', 'on']
        ]}
      />
      <TextField form={form} name="quantum" label="Turns of at least" type="number" min={0} hint="Seconds a job runs before another's turn." />
      <TextField form={form} name="pending_timeout" label="Gives up after" type="number" min={0} hint="Seconds without ever a slot; empty for never." />
      <TextField form={form} name="max_priority" label="Highest priority" type="number" min={1} hint="Of a job; an admin may exceed it." />
      {QUOTAS.map(([name, label, whose]) => (
        <TextField key={name} form={form} name={name} label={label} type="number" min={1} hint={`${whose}, at most; empty for no quota.`} />
      ))}
    </BoxedForm>
  );
}
