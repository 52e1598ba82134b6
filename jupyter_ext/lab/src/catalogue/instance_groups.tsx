/** Instance groups: the queues, how each divides its slots, and how they are changed. What is changed counts at once. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Answer, Failure } from '../page/standing';
import { policyOf } from '../policies';
import { count, span } from '../words';

import type { IInstanceGroup, IResourceGroup } from './answers';
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
            <p className="jp-edt-hint">
              An instance group is a queue of jobs over a resource group&apos;s slots. Changes count at once, also for jobs
              that run.
            </p>
            <div className="jp-edt-toolbar">
              <button type="button" className="jp-edt-button" onClick={() => setEditing('')} disabled={editing === ''}>
                Add an instance group
              </button>
            </div>
            {editing === '' && (
              <GroupForm group={null} groups={groups} resources={resources} onDone={close} onCancel={close} />
            )}
            {edited !== undefined && (
              <GroupForm
                key={edited.name}
                group={edited}
                groups={groups}
                resources={resources}
                onDone={close}
                onCancel={close}
              />
            )}
            {failed !== null && <Failure error={failed} />}
            <div className="jp-edt-scroll">
              <table className="jp-edt-table">
                <thead>
                  <tr>
                    <th scope="col">Instance group</th>
                    <th scope="col">Policy</th>
                    <th scope="col">Preemption</th>
                    <th scope="col">Over</th>
                    <th scope="col" className="jp-mod-number">
                      Share
                    </th>
                    <th scope="col" className="jp-mod-number">
                      Own slots
                    </th>
                    <th scope="col">Lends, borrows</th>
                    <th scope="col">Jobs</th>
                    <th scope="col">
                      <span className="jp-edt-visually-hidden">Actions</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {groups.map(group => {
                    const now = state.get(group.name);
                    return (
                      <tr key={group.name}>
                        <th scope="row">
                          {group.name}
                          {group.parent !== '' && <div className="jp-edt-hint">in {group.parent}</div>}
                        </th>
                        <td>
                          {policyOf(group.policy)}
                          {group.throughput_aware ? ', by measured speed' : ''}
                          <div className="jp-edt-hint">turns of at least {span(group.quantum)}</div>
                        </td>
                        <td>{group.preemption ? 'on' : 'off'}</td>
                        <td>{group.resource_group}</td>
                        <td className="jp-mod-number">{group.share}</td>
                        <td className="jp-mod-number">{group.own}</td>
                        <td>
                          {group.lend === null ? 'all' : group.lend}, {group.borrow === null ? 'no limit' : group.borrow}
                        </td>
                        <td>{now === undefined ? '–' : `${now.jobs}, ${now.held} of ${now.slots} slots`}</td>
                        <td>
                          <div className="jp-edt-row-actions">
                            <button
                              type="button"
                              className="jp-edt-button"
                              aria-label={`Change ${group.name}`}
                              onClick={() => setEditing(group.name)}
                            >
                              Change
                            </button>
                            <button
                              type="button"
                              className="jp-edt-button"
                              aria-label={`Delete ${group.name}`}
                              onClick={() =>
                                remove({
                                  name: `the instance group ${group.name}`,
                                  comesTo: living(now?.jobs ?? 0),
                                  path: `instance-groups/${enc(group.name)}`
                                })
                              }
                            >
                              Delete
                            </button>
                          </div>
                        </td>
                      </tr>
                    );
                  })}
                </tbody>
              </table>
            </div>
            <ResourceGroups all={resources} over={groups} cluster={cluster} onChanged={answer.again} />
          </>
        );
      }}
    </Answer>
  );
}

function living(jobs: number): string {
  return jobs === 0
    ? 'No job is in it.'
    : `${count(jobs, 'job')} that ${jobs === 1 ? 'has' : 'have'} not ended ${jobs === 1 ? 'is' : 'are'} in it.`;
}
