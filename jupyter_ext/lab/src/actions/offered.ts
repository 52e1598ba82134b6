/** Which commands make sense for a job in its state, the most likely first. Pure. */
import { CommandIDs } from '../commands';
import { ELASTIC, type ICheckpoint, type IJobView, hasFailed, isFinal } from '../views';
import { beingSuspended } from '../words';

export interface IAction {
  command: string;
  label: string;
}

export const LABELS: Record<string, string> = {
  [CommandIDs.openJob]: 'Open',
  [CommandIDs.mend]: 'Mend and run again',
  [CommandIDs.suspend]: 'Suspend',
  [CommandIDs.resume]: 'Resume',
  [CommandIDs.stop]: 'Stop',
  [CommandIDs.update]: 'Change …',
  [CommandIDs.clone]: 'Clone …',
  [CommandIDs.download]: 'Download',
  [CommandIDs.validate]: 'Validate …',
  [CommandIDs.register]: 'Keep …',
  [CommandIDs.delete]: 'Delete …',
  [CommandIDs.copyPython]: 'Copy Python'
};

/** What an ended job has left: a state to resume from, and weights to validate. */
export interface Outputs {
  readonly exact: boolean;
  readonly weights: boolean;
}

export function outputsOf(checkpoints: readonly ICheckpoint[]): Outputs {
  const has = (exact: boolean): boolean => checkpoints.some(each => (each.kind === 'exact') === exact);
  return { exact: has(true), weights: has(false) };
}

/** What it has probably left, by how far it came. */
function likely(view: IJobView): Outputs {
  const { state, progress } = view;
  return { exact: progress !== null, weights: progress !== null && (state === 'FINISHED' || progress.epoch > 0) };
}

/** What may be done with a job of mine, or (`mine` false) of another user: look at it. `known` where its files were listed. */
export function offered(view: IJobView, mine: boolean, known: Outputs | null = null): string[] {
  if (!mine) {
    return [CommandIDs.openJob];
  }
  if (isFinal(view.state)) {
    const { exact, weights } = known ?? likely(view);
    const mend = hasFailed(view.state) ? [CommandIDs.mend] : [];
    const again = view.state !== 'FINISHED' && exact ? [CommandIDs.resume] : [];
    const test = view.framework === ELASTIC && !view.validates && weights ? [CommandIDs.validate] : [];
    const keep = view.state === 'FINISHED' && !view.validates && weights ? [CommandIDs.register] : [];
    const rest = [CommandIDs.clone, CommandIDs.copyPython, CommandIDs.delete];
    return [CommandIDs.openJob, ...mend, CommandIDs.download, ...keep, ...test, ...again, ...rest];
  }
  const pause = beingSuspended(view) ? CommandIDs.resume : CommandIDs.suspend;
  const rest = [CommandIDs.update, CommandIDs.download, CommandIDs.clone, CommandIDs.copyPython];
  return [CommandIDs.openJob, pause, CommandIDs.stop, ...rest];
}
