/** What an action does, in numbers, before it is done. Pure but for what it is given. */
import type { ICheckpoint, IJobView } from '../views';
import { bytes, clock, count, grouped } from '../words';

/** The newest point a training can go on from exactly, undefined when there is none. */
export function newest(checkpoints: ICheckpoint[]): ICheckpoint | undefined {
  return checkpoints
    .filter(one => one.kind === 'exact')
    .sort((a, b) => (a.training ?? 0) - (b.training ?? 0) || (a.update ?? 0) - (b.update ?? 0))
    .pop();
}

/** Updates that would be computed again after going on from there; null where that is not known. */
export function lost(view: IJobView, checkpoints: ICheckpoint[]): number | null {
  if (!view.progress) {
    return null;
  }
  const from = newest(checkpoints);
  return Math.max(0, view.progress.update - (from?.update ?? 0));
}

export function stopWords(view: IJobView, checkpoints: ICheckpoint[]): string {
  const parts = [free(view)];
  const gone = lost(view, checkpoints);
  const from = newest(checkpoints);
  if (gone === null) {
    parts.push('It has not trained yet: nothing is lost.');
  } else if (from) {
    const when = clock(from.time);
    parts.push(
      gone
        ? `Its newest checkpoint is of update ${grouped(from.update ?? 0)} (${when}): ${count(gone, 'update')} since then would be computed again.`
        : `Its newest checkpoint is of update ${grouped(from.update ?? 0)} (${when}): no update is lost.`
    );
  } else {
    parts.push(`It has no checkpoint yet: ${gone === 1 ? 'its 1 update is' : `all of its ${grouped(gone)} updates are`} lost.`);
  }
  if (gone) {
    parts.push('Suspend it instead to lose none.');
  }
  return parts.join(' ');
}

export function suspendWords(view: IJobView): string {
  return `${free(view)} It writes a checkpoint first, so no update is lost, and waits until somebody resumes it.`;
}

export function deleteWords(view: IJobView, checkpoints: ICheckpoint[]): string {
  const size = checkpoints.reduce((sum, one) => sum + one.bytes, 0);
  const held = checkpoints.length
    ? `${count(checkpoints.length, 'checkpoint')} (${bytes(size)}), its logs and its story`
    : 'Its logs and its story';
  return `${held} are removed from the server and cannot be brought back. Download “${view.name}” first to keep them.`;
}

function free(view: IJobView): string {
  return view.slots ? `${count(view.slots, 'slot')} become${view.slots === 1 ? 's' : ''} free.` : 'It holds no slot.';
}

/** The three lines that reach this job from Python. */
export function pythonOf(id: string): string {
  return `from edt_sdk import Client\n\njob = Client().job("${id}")\njob\n`;
}
