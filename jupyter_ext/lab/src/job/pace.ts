/**
 * When a training ends if it goes on as it does: from the updates since its number of slots last changed. Pure.
 *
 * The server's forecast includes the other jobs and costs a simulation, so that it is asked for at a change only.
 */
import type { IJobView } from '../views';

const SHORTEST = 3;
const LONGEST = 60;

/** Updates of one job as they were seen. */
export class Pace {
  private slots = -1;
  private seen: { at: number; update: number }[] = [];

  /** Take a view of the time `at`, seconds since the epoch. */
  saw(job: IJobView, at: number): void {
    if (job.slots !== this.slots || job.progress === null || job.state !== 'RUNNING') {
      this.slots = job.slots;
      this.seen = [];
    }
    if (job.progress !== null && this.seen.at(-1)?.at !== at) {
      this.seen = [...this.seen.filter(each => each.at >= at - LONGEST), { at, update: job.progress.update }];
    }
  }

  /** Seconds since the epoch; null before enough was seen. */
  ends(job: IJobView): number | null {
    const [first, last] = [this.seen[0], this.seen.at(-1)];
    if (!first || !last || !job.progress?.total_updates || last.at - first.at < SHORTEST || last.update - first.update < 2) {
      return null;
    }
    const left = job.progress.total_updates - last.update;
    return last.at + (left * (last.at - first.at)) / (last.update - first.update);
  }
}
