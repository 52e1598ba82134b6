/** What draining or removing a host comes to, in numbers, before it is done. Pure. */

import type { ICluster, IClusterJob, ISlot } from '../views';
import { count } from '../words';

/** The slots of each host, in order. */
export function slotsByHost(cluster: ICluster | undefined): Map<string, ISlot[]> {
  const found = new Map<string, ISlot[]>();
  for (const slot of cluster?.slots ?? []) {
    const others = found.get(slot.host);
    if (others === undefined) {
      found.set(slot.host, [slot]);
    } else {
      others.push(slot);
    }
  }
  return found;
}

/** How many of these slots each job holds. */
export function heldThere(slots: readonly ISlot[]): Map<string, number> {
  const held = new Map<string, number>();
  for (const { job } of slots) {
    if (job !== null) {
      held.set(job, (held.get(job) ?? 0) + 1);
    }
  }
  return held;
}

export function drainWords(jobs: ReadonlyMap<string, IClusterJob>, slots: readonly ISlot[]): string {
  const held = heldThere(slots);
  if (held.size === 0) {
    return 'No job holds a slot there. It gets no new ones until the drain is undone.';
  }
  const whole = [...held].filter(([job, there]) => (jobs.get(job)?.held ?? 0) <= there).length;
  const parts = [];
  if (held.size > whole) {
    parts.push(`${count(held.size - whole, 'job')} ${held.size - whole === 1 ? 'shrinks at its' : 'shrink at their'} next update`);
  }
  if (whole > 0) {
    const waits = whole === 1 ? 'it goes on elsewhere, or waits' : 'they go on elsewhere, or wait';
    parts.push(`${count(whole, 'job')} ${whole === 1 ? 'has all its' : 'have all their'} slots there: ${waits} for a slot`);
  }
  return `${parts.join('; ')}; none stops.`;
}

export function removeWords(slots: readonly ISlot[]): string {
  const jobs = heldThere(slots).size;
  const used = slots.filter(({ job }) => job !== null).length;
  const key = 'Its key is forgotten: the machine joins again with a new token only.';
  if (jobs === 0) {
    return `No job holds a slot there. ${key}`;
  }
  const own = jobs === 1 ? 'its workers there end at once, and it goes on from its' : 'their workers there end at once, and they go on from their';
  return `${count(jobs, 'job')} ${jobs === 1 ? 'holds' : 'hold'} ${count(used, 'slot')} there: ${own} last update or checkpoint. Drain it first to lose nothing. ${key}`;
}
