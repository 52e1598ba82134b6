/** Which commands make sense for a job in its state, the most likely first. Pure. */
import { CommandIDs } from '../commands';
import { ELASTIC, type IJobView, isFinal } from '../views';
import { beingSuspended } from '../words';

export interface IAction {
  command: string;
  label: string;
}

export const LABELS: Record<string, string> = {
  [CommandIDs.openJob]: 'Open',
  [CommandIDs.suspend]: 'Suspend',
  [CommandIDs.resume]: 'Resume',
  [CommandIDs.stop]: 'Stop',
  [CommandIDs.update]: 'Change …',
  [CommandIDs.clone]: 'Clone …',
  [CommandIDs.download]: 'Download',
  [CommandIDs.validate]: 'Validate …',
  [CommandIDs.delete]: 'Delete …',
  [CommandIDs.copyPython]: 'Copy Python'
};

/** What may be done with a job of mine, or (`mine` false) with somebody else's: look at it. */
export function offered(view: IJobView, mine: boolean): string[] {
  if (!mine) {
    return [CommandIDs.openJob];
  }
  if (isFinal(view.state)) {
    const again = view.state !== 'FINISHED' && view.started !== null ? [CommandIDs.resume] : [];
    const test = view.framework === ELASTIC && !view.validates && view.progress !== null ? [CommandIDs.validate] : [];
    const rest = [CommandIDs.clone, CommandIDs.copyPython, CommandIDs.delete];
    return [CommandIDs.openJob, CommandIDs.download, ...test, ...again, ...rest];
  }
  const pause = beingSuspended(view) ? CommandIDs.resume : CommandIDs.suspend;
  const rest = [CommandIDs.update, CommandIDs.download, CommandIDs.clone, CommandIDs.copyPython];
  return [CommandIDs.openJob, pause, CommandIDs.stop, ...rest];
}
