/** What a change of a resource group would come to, as far as it can be known from here. Pure. */

import { count } from '../words';
import type { ICluster } from '../views';

import type { IResourceGroup } from './answers';

/** Names of hosts from a line of text. */
export function hostsOf(text: string): string[] {
  return text.split(/[\s,]+/).filter(name => name !== '');
}

/** Slots that `group` has of each host now. */
function heldNow(cluster: ICluster, group: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const slot of cluster.slots) {
    if (slot.resource_group === group) {
      found.set(slot.host, (found.get(slot.host) ?? 0) + 1);
    }
  }
  return found;
}

/** Slots of each host with this formula; null where the host alone knows what it offers. */
function formulaGives(formula: string, before: IResourceGroup | null, now: number | undefined): number | null {
  if (/^\d+$/.test(formula)) {
    return Number(formula);
  }
  return before !== null && formula === before.slots && now !== undefined ? now : null;
}

/** Sentences: which hosts come and go, how many slots there would be, and whose jobs are on those that go. */
export function foreseen(
  cluster: ICluster,
  all: readonly IResourceGroup[],
  before: IResourceGroup | null,
  after: IResourceGroup
): string[] {
  const now = before === null ? new Map<string, number>() : heldNow(cluster, before.name);
  const known = [...new Set(cluster.slots.map(slot => slot.host))];
  const taken = new Set(all.filter(each => each.name !== before?.name).flatMap(each => each.hosts));
  const hosts = after.hosts.length > 0 ? after.hosts : known.filter(host => !taken.has(host));
  const said: string[] = [];
  const strange = hosts.filter(host => !known.includes(host));
  if (strange.length > 0) {
    said.push(`No host called ${strange.join(', ')} has a slot now; there may be one later.`);
  }
  const others = all.filter(each => each.name !== before?.name && each.hosts.some(host => hosts.includes(host)));
  for (const other of others) {
    said.push(`${other.hosts.filter(host => hosts.includes(host)).join(', ')} is named by ${other.name}; a host has one group.`);
  }
  const counts = hosts.filter(host => known.includes(host)).map(host => formulaGives(after.slots, before, now.get(host)));
  const had = [...now.values()].reduce((sum, slots) => sum + slots, 0);
  if (counts.every(slots => slots !== null)) {
    const total = counts.reduce<number>((sum, slots) => sum + (slots ?? 0), 0);
    said.push(before === null ? `It would have ${count(total, 'slot')}.` : `${had} → ${count(total, 'slot')}.`);
  } else {
    const rule = after.slots === '' ? 'what each host offers' : `${after.slots} of each host`;
    said.push(`${before === null ? '' : `${count(had, 'slot')} now; then `}${rule}.`.replace(/^./, first => first.toUpperCase()));
  }
  const leaving = [...now.keys()].filter(host => !hosts.includes(host));
  const fewer = [...now].filter(([host, slots]) => {
    const then = formulaGives(after.slots, before, slots);
    return hosts.includes(host) && then !== null && then < slots;
  });
  const shrinking = new Set([...leaving, ...fewer.map(([host]) => host)]);
  const touched = new Set(
    cluster.slots.filter(slot => slot.job !== null && shrinking.has(slot.host)).map(slot => slot.job)
  );
  if (touched.size > 0) {
    const names = cluster.jobs.filter(job => touched.has(job.id)).map(job => job.name || job.id);
    said.push(`${names.join(', ')} may give slots back: after an update, nothing is lost.`);
  }
  return said;
}
