/** Resource groups: which hosts' slots instance groups divide, and how many of each host. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { type Column, Table } from '../page/table';
import { count } from '../words';
import type { ICluster } from '../views';

import type { IInstanceGroup, IResourceGroup } from './answers';
import { Entries } from './entries';
import { useRemoval } from './removal';
import { ResourceForm } from './resource_form';

/** `onChanged` is called when something may have changed. */
export function ResourceGroups(props: {
  all: readonly IResourceGroup[];
  over: readonly IInstanceGroup[];
  cluster: ICluster;
  onChanged: () => void;
}): ReactElement {
  const { all, cluster, onChanged } = props;
  /** The name of the group in the form, "" for a new one, null for none. */
  const [editing, setEditing] = useState<string | null>(null);
  const close = (): void => {
    setEditing(null);
    onChanged();
  };
  const { failed, remove } = useRemoval(close);
  const edited = all.find(group => group.name === editing) ?? null;
  const state = (group: IResourceGroup): { slots: number; free: number } =>
    cluster.resource_groups.find(each => each.name === group.name) ?? { slots: 0, free: 0 };
  const dividing = (group: IResourceGroup): string[] =>
    props.over.filter(each => each.resource_group === group.name).map(each => each.name);
  const columns: Column<IResourceGroup>[] = [
    { head: 'Resource group', cell: group => group.name },
    { head: 'Hosts', cell: group => group.hosts.join(', ') || 'every host that no other group names' },
    { head: 'Slots of each host', cell: group => group.slots || 'what it offers' },
    { head: 'Portable', cell: group => (group.portable ? 'yes' : 'no') },
    { head: 'Slots', number: true, cell: group => state(group).slots },
    { head: 'Free', number: true, cell: group => state(group).free },
    { head: 'Divided by', cell: group => dividing(group).join(', ') || 'none' }
  ];
  const removal = ({ name, slots }: { name: string; slots: number }): void =>
    remove({
      name: `the resource group ${name}`,
      comesTo: `Its ${count(slots, 'slot')} go to the group that names no host, or to none.`,
      path: `resource-groups/${enc(name)}`
    });
  return (
    <section aria-label="Resource groups">
      <h3>Resource groups</h3>
      <Entries
        intro="Hosts whose slots are divided together. Slots that go are given back after an update."
        add="Add a resource group"
        adding={editing === ''}
        onAdd={() => setEditing('')}
        failed={failed}
        form={
          (editing === '' || edited !== null) && (
            <ResourceForm
              key={editing}
              of={edited}
              all={all}
              cluster={cluster}
              onDone={close}
              onCancel={() => setEditing(null)}
            />
          )
        }
      >
        <Table
          rows={all}
          keyOf={group => group.name}
          columns={columns}
          actions={group => [
            { label: 'Change', says: `Change ${group.name} (resource group)`, run: () => setEditing(group.name) },
            {
              label: 'Delete',
              says: `Delete ${group.name} (resource group)`,
              run: () => removal({ name: group.name, slots: state(group).slots })
            }
          ]}
        />
      </Entries>
    </section>
  );
}
