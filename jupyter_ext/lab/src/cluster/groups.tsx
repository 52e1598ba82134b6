/** Instance groups with their policy and what each has now. */

import type { ReactElement } from 'react';

import { policyOf } from '../policies';
import type { IGroupState } from '../views';

/** In the order of the plan; groups inside another are set in. */
export function Groups(props: { groups: readonly IGroupState[] }): ReactElement {
  const byName = new Map(props.groups.map(group => [group.name, group]));
  const depth = (group: IGroupState): number => {
    const parent = group.parent === '' ? undefined : byName.get(group.parent);
    return parent === undefined ? 0 : 1 + depth(parent);
  };
  return (
    <div className="jp-edt-scroll">
      <table className="jp-edt-table">
        <thead>
          <tr>
            <th scope="col">Instance group</th>
            <th scope="col">Policy</th>
            <th scope="col">Over</th>
            <th scope="col" className="jp-mod-number">
              Jobs
            </th>
            <th scope="col" className="jp-mod-number">
              Waiting
            </th>
            <th scope="col" className="jp-mod-number">
              Slots held
            </th>
            <th scope="col" className="jp-mod-number">
              Entitled to
            </th>
            <th scope="col" className="jp-mod-number">
              Own
            </th>
            <th scope="col">Borrowed and lent</th>
          </tr>
        </thead>
        <tbody>
          {props.groups.map(group => (
            <tr key={group.name}>
              <th scope="row" style={{ paddingInlineStart: `${8 + 16 * depth(group)}px` }}>
                {group.name}
              </th>
              <td>{policyOf(group.policy)}</td>
              <td>{group.resource_group}</td>
              <td className="jp-mod-number">{group.jobs}</td>
              <td className="jp-mod-number">{group.waiting.length}</td>
              <td className="jp-mod-number">
                {group.held} of {group.slots}
              </td>
              <td className="jp-mod-number">{group.entitled}</td>
              <td className="jp-mod-number">{group.own}</td>
              <td>{loans(group)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function loans(group: IGroupState): string {
  const from = Object.entries(group.lenders).map(([name, slots]) => `${slots} from ${name}`);
  const to = Object.entries(group.borrowers).map(([name, slots]) => `${slots} to ${name}`);
  const parts = [];
  // As in the picture above: slots that nobody owns are not borrowed.
  if (from.length > 0) {
    parts.push(`borrows ${from.join(', ')}`);
  }
  if (group.lent > 0) {
    parts.push(`lends ${group.lent}${to.length > 0 ? ` (${to.join(', ')})` : ''}`);
  }
  return parts.length > 0 ? parts.join('; ') : '–';
}
