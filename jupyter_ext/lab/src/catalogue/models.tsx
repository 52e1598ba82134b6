/** Models: code with what it is trained with. Added from a folder, trained by a click, listed with their trainings. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { CommandIDs } from '../commands';
import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Answer, Empty } from '../page/standing';
import { type Column, Table } from '../page/table';
import { State } from '../state';
import { bytes, clock, count } from '../words';

import type { IDatasets, IModel, IModelDetails, IModels } from './answers';
import { Entries } from './entries';
import { ModelForm } from './model_form';
import { ModelTraining } from './model_training';
import { useRemoval } from './removal';
import type { Removed } from './removal';

const SECONDS = 15;

/** What is open below the list: a form, or a model's trainings. */
type Open = { what: 'nothing' } | { what: 'add' } | { what: 'train' | 'show'; id: string };

/** The page of models. */
export function Models(): ReactElement {
  const { api } = useEdt();
  const answer = usePolled('models', () => api.request<IModels>('models', { no_track_activity: 1 }), SECONDS);
  const datasets = usePolled('datasets', () => api.request<IDatasets>('datasets', { no_track_activity: 1 }), SECONDS);
  const [open, setOpen] = useState<Open>({ what: 'nothing' });
  const close = (): void => {
    setOpen({ what: 'nothing' });
    answer.again();
  };
  const { failed, remove } = useRemoval(close);
  const names = (datasets.value?.datasets ?? []).map(dataset => dataset.name);
  return (
    <Answer of={answer} what="Looking for models">
      {({ models, frameworks, hyperparameters }) => {
        const chosen = 'id' in open ? models.find(model => model.id === open.id) : undefined;
        return (
          <>
            <Entries
              intro="A model is a training script with its arguments, data set and maximum of workers. Each training of it is a job."
              add="Add a model"
              adding={open.what === 'add'}
              onAdd={() => setOpen({ what: 'add' })}
              failed={failed}
              form={
                open.what === 'add' && (
                  <ModelForm
                    frameworks={frameworks}
                    hyperparameters={hyperparameters}
                    datasets={names}
                    templates={models.map(model => model.name)}
                    onDone={close}
                    onCancel={close}
                  />
                )
              }
            >
              {models.length === 0 ? (
                <Empty>
                  <p>
                    There is no model yet. Add a folder with a training script, such as one of the examples; it can then be
                    trained with a click, with another data set or more workers each time.
                  </p>
                </Empty>
              ) : (
                <List models={models} onOpen={setOpen} onRemove={model => remove(removalOf(model))} />
              )}
            </Entries>
            {open.what === 'train' && chosen !== undefined && (
              <ModelTraining key={chosen.id} model={chosen} frameworks={frameworks} datasets={names} onCancel={close} />
            )}
            {open.what === 'show' && chosen !== undefined && <Trainings key={chosen.id} model={chosen} />}
          </>
        );
      }}
    </Answer>
  );
}

function List(props: {
  models: readonly IModel[];
  onOpen: (open: Open) => void;
  onRemove: (model: IModel) => void;
}): ReactElement {
  const columns: Column<IModel>[] = [
    {
      head: 'Model',
      cell: model => (
        <>
          {model.name}
          {model.kind === 'template' && <span className="jp-edt-hint"> template</span>}
          {model.description !== '' && <div className="jp-edt-hint">{model.description}</div>}
        </>
      )
    },
    { head: 'Training engine', cell: model => model.framework },
    { head: 'Script', cell: model => [model.main, ...model.args].join(' '), title: model => model.origin },
    { head: 'Data set', cell: model => model.dataset || 'none' },
    { head: 'Maximum workers', number: true, cell: model => model.max_workers },
    {
      head: 'Trainings',
      cell: model =>
        model.trainings === 0 ? (
          'none yet'
        ) : (
          <button type="button" className="jp-edt-link" onClick={() => props.onOpen({ what: 'show', id: model.id })}>
            {count(model.trainings, 'training')}
          </button>
        )
    }
  ];
  return (
    <Table
      rows={props.models}
      keyOf={model => model.id}
      columns={columns}
      actions={model => [
        ...(model.kind === 'model'
          ? [{ label: 'Train', says: `Train ${model.name}`, run: () => props.onOpen({ what: 'train', id: model.id }) }]
          : []),
        { label: 'Delete', says: `Delete ${model.name}`, run: () => props.onRemove(model) }
      ]}
    />
  );
}

/** The jobs that are trainings of a model. */
function Trainings(props: { model: IModel }): ReactElement {
  const { api, commands } = useEdt();
  const { name } = props.model;
  const answer = usePolled(
    `model ${name}`,
    () => api.request<IModelDetails>(`models/${enc(name)}`, { no_track_activity: 1 }),
    SECONDS
  );
  return (
    <section aria-label={`Trainings of ${name}`}>
      <h3>Trainings of {name}</h3>
      <Answer of={answer} what="Looking for its trainings">
        {({ trainings }) => (
          <Table
            rows={trainings}
            keyOf={job => job.id}
            columns={[
              {
                head: 'Job',
                cell: job => (
                  <button
                    type="button"
                    className="jp-edt-link"
                    onClick={() => void commands.execute(CommandIDs.openJob, { id: job.id, name: job.name })}
                  >
                    {job.name}
                  </button>
                )
              },
              { head: 'State', cell: job => <State state={job.state} /> },
              { head: 'Submitted', cell: job => clock(job.created) }
            ]}
          />
        )}
      </Answer>
    </section>
  );
}

function removalOf(model: IModel): Removed {
  const trainings =
    model.trainings === 0 ? 'It was never trained.' : `Its ${count(model.trainings, 'training')} and their results stay.`;
  return {
    name: model.name,
    comesTo: `Its ${count(model.files, 'file')}, ${bytes(model.size)}, will be removed from the server. ${trainings}`,
    path: `models/${enc(model.name)}`,
    query: { kind: model.kind }
  };
}
