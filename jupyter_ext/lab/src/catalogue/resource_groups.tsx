/** Resource groups: which hosts' slots instance groups divide, and how many of each host. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { Failure } from '../page/standing';
import { count } from '../words';
import type { ICluster } from '../views';

import type { IInstanceGroup, IResourceGroup } from './answers';
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
  return (
    <section aria-label="Resource groups">
      <h3>Resource groups</h3>
      <p className="jp-edt-hint">Hosts whose slots are divided together. Slots that go are given back after an update.</p>
      <div className="jp-edt-toolbar">
        <button type="button" className="jp-edt-button" onClick={() => setEditing('')} disabled={editing === ''}>
          Add a resource group
        </button>
      </div>
      {(editing === '' || edited !== null) && (
        <ResourceForm
          key={editing}
          of={edited}
          all={all}
          cluster={cluster}
          onDone={close}
          onCancel={() => setEditing(null)}
        />
      )}
      {failed !== null && <Failure error={failed} />}
      <div className="jp-edt-scroll">
        <table className="jp-edt-table">
          <thead>
            <tr>
              <th scope="col">Resource group</th>
              <th scope="col">Hosts</th>
              <th scope="col">Slots of each host</th>
              <th scope="col" className="jp-mod-number">
                Slots
              </th>
              <th scope="col" className="jp-mod-number">
                Free
              </th>
              <th scope="col">Divided by</th>
              <th scope="col">
                <span className="jp-edt-visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {all.map(group => {
              const now = cluster.resource_groups.find(each => each.name === group.name);
              const over = props.over.filter(each => each.resource_group === group.name).map(each => each.name);
              return (
                <tr key={group.name}>
                  <th scope="row">{group.name}</th>
                  <td>{group.hosts.length === 0 ? 'every host that no other group names' : group.hosts.join(', ')}</td>
                  <td>{group.slots === '' ? 'what it offers' : group.slots}</td>
                  <td className="jp-mod-number">{now?.slots ?? 0}</td>
                  <td className="jp-mod-number">{now?.free ?? 0}</td>
                  <td>{over.join(', ') || 'none'}</td>
                  <td>
                    <div className="jp-edt-row-actions">
                      <button
                        type="button"
                        className="jp-edt-button"
                        aria-label={`Change ${group.name} (resource group)`}
                        onClick={() => setEditing(group.name)}
                      >
                        Change
                      </button>
                      <button
                        type="button"
                        className="jp-edt-button"
                        aria-label={`Delete ${group.name} (resource group)`}
                        onClick={() =>
                          remove({
                            name: `the resource group ${group.name}`,
                            comesTo: `Its ${count(now?.slots ?? 0, 'slot')} go to the group that names no host, or to none.`,
                            path: `resource-groups/${enc(group.name)}`
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
    </section>
  );
}
