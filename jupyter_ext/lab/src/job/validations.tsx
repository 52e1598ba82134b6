/**
 * The view of what a training is worth: the validations of it, with their numbers side by side and the chosen one's whole
 * result below, and the form for one more. The tab of a validation has its own result there.
 */

import { useRef, useState } from 'react';
import type { ReactElement } from 'react';

import { type Api, ApiError, enc } from '../api';
import { CommandIDs } from '../commands';
import { usePolled } from '../page/polled';
import { Answer, Empty } from '../page/standing';
import { useEdt } from '../page/surroundings';
import { type Column, Table } from '../page/table';
import { State } from '../state';
import { isFinal } from '../views';
import type { IJobView } from '../views';
import { clock } from '../words';

import { metricName, metricValue, testable } from './metric_words';
import type { IValidated } from './validation_answers';
import { ValidationForm } from './validation_form';
import { ValidationResult } from './validation_result';

const NEWEST = 500;
const LISTED = 20;
const LIVELY = 3;
const SECONDS = 20;

/** A validation of a training; `result` is null before its end, and where nothing came out. */
interface Check {
  readonly job: IJobView;
  readonly result: IValidated | null;
}

/** `asking`: the form is open. */
export function Validations(props: { job: IJobView; asking: boolean; onAsking: (asking: boolean) => void }): ReactElement {
  const { job, asking, onAsking } = props;
  const { api } = useEdt();
  const known = useRef(new Map<string, IValidated>());
  const [lively, setLively] = useState(false);
  const look = async (): Promise<Check[]> => {
    const { jobs } = await api.jobs({ limit: NEWEST });
    const found = jobs.filter(each => each.validates === job.id).slice(0, LISTED);
    setLively(found.some(each => !isFinal(each.state)));
    return Promise.all(
      found.map(async each => {
        const result = known.current.get(each.id) ?? (each.state === 'FINISHED' ? await resultOf(api, each.id) : null);
        if (result !== null) {
          known.current.set(each.id, result);
        }
        return { job: each, result };
      })
    );
  };
  const answer = usePolled(`validations ${job.id}`, look, lively ? LIVELY : SECONDS);
  const [chosen, setChosen] = useState('');
  if (!testable(job)) {
    return (
      <Empty>
        <p>
          Only trainings by the elastic engine (<code>FabricModel</code>) can be validated: of any other script nobody but the
          script knows its model and its test data.
        </p>
      </Empty>
    );
  }
  return (
    <Answer of={answer} what="Looking for validations">
      {checks => {
        const shown = checks.find(each => each.job.id === chosen && each.result !== null) ?? checks.find(each => each.result);
        const form = asking || checks.length === 0;
        return (
          <>
            <p className="jp-edt-hint">
              A validation runs the trained model once over the test data and trains nothing. It is a job like any other.
            </p>
            {form ? (
              <ValidationForm
                job={job}
                onStarted={started => {
                  onAsking(false);
                  setLively(true);
                  setChosen(started.id);
                  answer.tell([{ job: started, result: null }, ...checks]);
                }}
                onCancel={checks.length > 0 ? () => onAsking(false) : undefined}
              />
            ) : (
              <div className="jp-edt-toolbar">
                <button type="button" className="jp-edt-button" onClick={() => onAsking(true)}>
                  Validate again …
                </button>
              </div>
            )}
            {checks.length > 0 && <Checks of={checks} shown={shown} onChoose={setChosen} />}
            {shown?.result && <ValidationResult of={shown.result} />}
          </>
        );
      }}
    </Answer>
  );
}

/** One row a validation, one column a metric. */
function Checks(props: { of: readonly Check[]; shown: Check | undefined; onChoose: (id: string) => void }): ReactElement {
  const { commands } = useEdt();
  const names = [...new Set(props.of.flatMap(({ result }) => Object.keys(result?.metrics ?? {})))];
  const open = (job: IJobView): void => void commands.execute(CommandIDs.openJob, { id: job.id, name: job.name });
  const columns: Column<Check>[] = [
    {
      head: 'Validation',
      cell: ({ job }) => (
        <button type="button" className="jp-edt-link" title={job.id} onClick={() => open(job)}>
          {job.name}
        </button>
      )
    },
    {
      head: 'State',
      cell: ({ job, result }) => (
        <>
          <State state={job.state} />
          {job.message !== '' && result === null && <div className="jp-edt-hint">{firstLine(job.message)}</div>}
        </>
      )
    },
    { head: 'Submitted', cell: ({ job }) => clock(job.created) },
    ...names.map(
      (name): Column<Check> => ({
        head: metricName(name),
        number: true,
        cell: ({ result }) => metricValue(name, result?.metrics[name])
      })
    )
  ];
  const several = props.of.filter(({ result }) => result !== null).length > 1;
  return (
    <Table
      label="Validations"
      rows={props.of}
      keyOf={({ job }) => job.id}
      columns={columns}
      actions={({ job, result }) =>
        several && result !== null
          ? [
              {
                label: 'Show',
                says: `Show ${job.name} of ${clock(job.created)}`,
                pressed: props.shown?.job.id === job.id,
                run: () => props.onChoose(job.id)
              }
            ]
          : []
      }
    />
  );
}

/** What is behind it, such as a traceback, is on the validation's own page. */
function firstLine(message: string): string {
  return message.split('\n', 1)[0] ?? '';
}

/** What a validation itself came to. */
export function OwnResult(props: { job: IJobView }): ReactElement {
  const { job } = props;
  const { api, commands } = useEdt();
  const ended = isFinal(job.state);
  const answer = usePolled(
    `validation ${job.id} ${ended}`,
    () => (ended ? resultOf(api, job.id) : Promise.resolve(null)).then(result => ({ result })),
    null
  );
  const training = job.validates ?? '';
  return (
    <>
      <p>
        A validation of{' '}
        <button
          type="button"
          className="jp-edt-link"
          onClick={() => void commands.execute(CommandIDs.openJob, { id: training })}
        >
          {training}
        </button>
        .
      </p>
      <Answer of={answer} what="Reading the result">
        {({ result }) =>
          result === null ? (
            <Empty>
              <p>
                {ended
                  ? 'Nothing came out. What is said above, or else the log, tells why.'
                  : 'The model is tested; what it comes to appears here at the end.'}
              </p>
            </Empty>
          ) : (
            <ValidationResult of={result} />
          )
        }
      </Answer>
    </>
  );
}

/** What a validation that has ended came to, null for nothing. */
async function resultOf(api: Api, id: string): Promise<IValidated | null> {
  try {
    return await api.request<IValidated>(`jobs/${enc(id)}/validation`, { no_track_activity: 1 });
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) {
      return null;
    }
    throw error;
  }
}
