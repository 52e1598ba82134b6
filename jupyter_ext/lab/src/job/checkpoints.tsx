/** The checkpoints of a job: what each is, and how to go on from it. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { offered } from '../actions/offered';
import { CommandIDs } from '../commands';
import { useEdt } from '../page/surroundings';
import { explain } from '../page/explain';
import { usePolled } from '../page/polled';
import { Answer, Empty } from '../page/standing';
import { type Column, Table } from '../page/table';
import { bytes, clock, grouped } from '../words';
import { isFinal } from '../views';
import type { ICheckpoint, IJobView } from '../views';

import { download } from './download';

/** The server lists weights and then what can be resumed, each oldest first. Here the last one is on top. `onChanged` gets the job that goes on. */
export function Checkpoints(props: {
  job: IJobView;
  seconds: number | null;
  onChanged: (job: IJobView) => void;
}): ReactElement {
  const { job } = props;
  const { api } = useEdt();
  const answer = usePolled(`checkpoints ${job.id}`, () => api.checkpoints(job.id), props.seconds);
  const [refused, setRefused] = useState('');
  const [said, setSaid] = useState('');
  const refuse = (error: unknown): void => {
    const { message, hint } = explain(error);
    setRefused(`${message} ${hint}`.trim());
  };
  const resume = async (checkpoint: ICheckpoint): Promise<void> => {
    setRefused('');
    try {
      props.onChanged(await api.resume(job.id, { checkpoint: checkpoint.name }));
      setSaid(`The job goes on from ${checkpoint.name}.`);
    } catch (error) {
      refuse(error);
    }
  };
  const why = whyNot(job);
  return (
    <Answer of={answer} what="Looking for checkpoints">
      {({ checkpoints }) =>
        checkpoints.length === 0 ? (
          <Empty>
            <p>
              {isFinal(job.state)
                ? 'This job has written no checkpoint.'
                : 'No checkpoint yet. They are written as often as the script says (checkpoint_freq), and whenever the job is suspended.'}
            </p>
          </Empty>
        ) : (
          <>
            <div className="jp-edt-toolbar">
              <button
                type="button"
                className="jp-edt-button"
                onClick={() => void download(api, job, 'checkpoint').catch(refuse)}
              >
                Download all checkpoints
              </button>
              <span className="jp-edt-hint">{why}</span>
            </div>
            {refused !== '' && (
              <p className="jp-edt-field-error" role="alert">
                ✕ {refused}
              </p>
            )}
            {said !== '' && <p role="status">✓ {said}</p>}
            <Table
              rows={[...checkpoints].reverse()}
              keyOf={each => each.name}
              columns={COLUMNS}
              actions={each =>
                each.kind === 'exact'
                  ? [
                      {
                        label: 'Resume from here',
                        says: `Resume from here, ${each.name}`,
                        disabled: !canResume(job),
                        title: why,
                        run: () => void resume(each)
                      }
                    ]
                  : []
              }
            />
          </>
        )
      }
    </Answer>
  );
}

const COLUMNS: readonly Column<ICheckpoint>[] = [
  { head: 'Name', cell: each => each.name },
  { head: 'What it is', cell: what },
  { head: 'Written', cell: each => clock(each.time) },
  { head: 'Size', number: true, cell: each => bytes(each.bytes) }
];

function what(checkpoint: ICheckpoint): string {
  if (checkpoint.kind === 'exact') {
    return `all of the training after update ${grouped(checkpoint.update ?? 0)}: it goes on with the same bits`;
  }
  return checkpoint.epoch === null ? 'the final weights' : `weights after epoch ${checkpoint.epoch}`;
}

function canResume(job: IJobView): boolean {
  // While its workers are still leaving it cannot be put back.
  const still = job.state === 'SUSPENDED' || isFinal(job.state);
  return still && offered(job, true).includes(CommandIDs.resume);
}

function whyNot(job: IJobView): string {
  if (canResume(job)) {
    return '';
  }
  return isFinal(job.state)
    ? 'This job is over: clone it to train again.'
    : 'Suspend or stop the job to go on from one of these.';
}
