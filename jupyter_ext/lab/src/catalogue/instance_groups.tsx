/** Instance groups: the queues, how each divides its slots, and how they are changed. What is changed counts at once. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Answer } from '../page/standing';
import { type Column, Table } from '../page/table';
import { policyOf } from '../policies';
import { count, span } from '../words';
import type { IGroupState } from '../views';

import type { IInstanceGroup, IResourceGroup } from './answers';
import { Entries } from './entries';
import { GroupForm } from './group_form';
import { useRemoval } from './removal';
import { ResourceGroups } from './resource_groups';

const SECONDS = 15;

/** The page of instance groups. */
export function InstanceGroups(): ReactElement {
  const { api } = useEdt();
  const answer = usePolled(
    'instance groups',
    async () => {
      const [groups, resources, cluster] = await Promise.all([
        api.request<{ instance_groups: IInstanceGroup[] }>('instance-groups', { no_track_activity: 1 }),
        api.request<{ resource_groups: IResourceGroup[] }>('resource-groups', { no_track_activity: 1 }),
        api.cluster()
      ]);
      return { groups: groups.instance_groups, resources: resources.resource_groups, cluster };
    },
    SECONDS
  );
  /** The name of the group in the form, "" for a new one, null for none. */
  const [editing, setEditing] = useState<string | null>(null);
  const close = (): void => {
    setEditing(null);
    answer.again();
  };
  const { failed, remove } = useRemoval(close);
  return (
    <Answer of={answer} what="Looking for instance groups">
      {({ groups, resources, cluster }) => {
        const state = new Map(cluster.groups.map(group => [group.name, group]));
        const edited = groups.find(group => group.name === editing);
        return (
          <>
            <Entries
              intro="An instance group is a queue of jobs over a resource group's slots. Changes count at once, also for jobs that run."
              add="Add an instance group"
              adding={editing === ''}
              onAdd={() => setEditing('')}
              failed={failed}
              form={
                (editing === '' || edited !== undefined) && (
                  <GroupForm
                    key={editing}
                    group={edited ?? null}
                    groups={groups}
                    resources={resources}
                    onDone={close}
                    onCancel={close}
                  />
                )
              }
            >
              <Table
                rows={groups}
                keyOf={group => group.name}
                columns={columns(state)}
                actions={group => [
                  { label: 'Change', says: `Change ${group.name}`, run: () => setEditing(group.name) },
                  {
                    label: 'Delete',
                    says: `Delete ${group.name}`,
                    run: () =>
                      remove({
                        name: `the instance group ${group.name}`,
                        comesTo: living(state.get(group.name)?.jobs ?? 0),
                        path: `instance-groups/${enc(group.name)}`
                      })
                  }
                ]}
              />
            </Entries>
            <ResourceGroups all={resources} over={groups} cluster={cluster} onChanged={answer.again} />
          </>
        );
      }}
    </Answer>
  );
}

/** `state`: what each group has now, by its name. */
function columns(state: ReadonlyMap<string, IGroupState>): Column<IInstanceGroup>[] {
  return [
    {
      head: 'Instance group',
      cell: group => (
        <>
          {group.name}
          {group.parent !== '' && <div className="jp-edt-hint">in {group.parent}</div>}
        </>
      )
    },
    {
      head: 'Policy',
      cell: group => (
        <>
          {policyOf(group.policy)}
          {group.throughput_aware ? ', by measured speed' : ''}
          <div className="jp-edt-hint">turns of at least {span(group.quantum)}</div>
        </>
      )
    },
    { head: 'Preemption', cell: group => (group.preemption ? 'on' : 'off') },
    { head: 'Over', cell: group => group.resource_group },
    { head: 'Share', number: true, cell: group => group.share },
    { head: 'Own slots', number: true, cell: group => group.own },
    { head: 'Lends, borrows', cell: group => `${group.lend ?? 'all'}, ${group.borrow ?? 'no limit'}` },
    {
      head: 'Jobs',
      cell: group => {
        const now = state.get(group.name);
        return now === undefined ? '–' : `${now.jobs}, ${now.held} of ${now.slots} slots`;
      }
    }
  ];
}

function living(jobs: number): string {
  return jobs === 0
    ? 'No job is in it.'
    : `${count(jobs, 'job')} that ${jobs === 1 ? 'has' : 'have'} not ended ${jobs === 1 ? 'is' : 'are'} in it.`;
}
