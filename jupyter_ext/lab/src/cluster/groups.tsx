/** Instance groups with their policy and what each has now. */

import type { ReactElement } from 'react';

import { type Column, Table } from '../page/table';
import { policyOf } from '../policies';
import type { IGroupState } from '../views';

/** In the order of the plan; groups inside another are set in. */
export function Groups(props: { groups: readonly IGroupState[] }): ReactElement {
  const byName = new Map(props.groups.map(group => [group.name, group]));
  const depth = (group: IGroupState): number => {
    const parent = group.parent === '' ? undefined : byName.get(group.parent);
    return parent === undefined ? 0 : 1 + depth(parent);
  };
  const columns: Column<IGroupState>[] = [
    { head: 'Instance group', cell: group => group.name, inset: group => 8 + 16 * depth(group) },
    { head: 'Policy', cell: group => policyOf(group.policy) },
    { head: 'Resource group', cell: group => group.resource_group },
    { head: 'Jobs', number: true, cell: group => group.jobs },
    { head: 'Waiting', number: true, cell: group => group.waiting.length },
    { head: 'Want more', number: true, cell: group => group.wanting.length },
    { head: 'Slots held', number: true, cell: group => `${group.held} of ${group.slots}` },
    { head: 'Entitled to', number: true, cell: group => group.entitled },
    { head: 'Own', number: true, cell: group => group.own },
    { head: 'Borrowed and lent', cell: loans }
  ];
  return <Table rows={props.groups} keyOf={group => group.name} columns={columns} />;
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
