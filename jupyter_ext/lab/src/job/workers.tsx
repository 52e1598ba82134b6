/** The workers of a job that run now: which slot, host and process each is. */

import type { ReactElement } from 'react';

import type { Polled } from '../page/polled';
import { Answer, Empty } from '../page/standing';
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
          <table className="jp-edt-table">
            <thead>
              <tr>
                <th scope="col">Worker</th>
                <th scope="col">Rank</th>
                <th scope="col">Slot</th>
                <th scope="col">Host</th>
                <th scope="col">Process</th>
                <th scope="col">Generation</th>
              </tr>
            </thead>
            <tbody>
              {workers.map(worker => (
                <tr key={worker.worker}>
                  <th scope="row">worker {worker.worker}</th>
                  <td>{worker.rank ?? 'gets ready'}</td>
                  <td>{worker.slot}</td>
                  <td>{worker.host}</td>
                  <td>{worker.pid}</td>
                  <td>{worker.generation ?? '–'}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )
      }
    </Answer>
  );
}
