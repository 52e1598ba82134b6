/** The workers of a job that run now: which slot, host and process each is. */

import type { ReactElement } from 'react';

import type { Polled } from '../page/polled';
import { Answer, Empty } from '../page/standing';
import { type Column, Table } from '../page/table';
import { isFinal } from '../views';
import type { IJobView, IWorker } from '../views';

/** `answer`: the question for them, asked by the page, which the log needs too. */
export function Workers(props: { job: IJobView; answer: Polled<readonly IWorker[]> }): ReactElement {
  return (
    <Answer of={props.answer} what="Looking for workers">
      {workers =>
        workers.length === 0 ? (
          <Empty>
            <p>{isFinal(props.job.state) ? 'The job has ended; no worker runs.' : 'No worker runs now.'}</p>
          </Empty>
        ) : (
          <Table rows={workers} keyOf={worker => worker.worker} columns={COLUMNS} />
        )
      }
    </Answer>
  );
}

const COLUMNS: readonly Column<IWorker>[] = [
  { head: 'Worker', cell: worker => `worker ${worker.worker}` },
  { head: 'Rank', cell: worker => worker.rank ?? 'gets ready' },
  { head: 'Slot', cell: worker => worker.slot },
  { head: 'Host', cell: worker => worker.host },
  { head: 'Process', cell: worker => worker.pid },
  { head: 'Generation', cell: worker => worker.generation ?? '–' }
];
