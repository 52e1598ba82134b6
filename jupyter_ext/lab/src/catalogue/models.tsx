/** Models: code with what it is trained with. Added from a folder, trained by a click, listed with their trainings. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { CommandIDs } from '../commands';
import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Answer, Empty, Failure } from '../page/standing';
import { State } from '../state';
import { bytes, clock, count } from '../words';

import type { IDatasets, IModel, IModelDetails, IModels } from './answers';
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
            <p className="jp-edt-hint">
              A model is a training script with its arguments, data set and maximum of workers. Each training of it is a job.
            </p>
            {open.what !== 'add' && (
              <div className="jp-edt-toolbar">
                <button type="button" className="jp-edt-button" onClick={() => setOpen({ what: 'add' })}>
                  Add a model
                </button>
              </div>
            )}
            {open.what === 'add' && (
              <ModelForm
                frameworks={frameworks}
                hyperparameters={hyperparameters}
                datasets={names}
                templates={models.map(model => model.name)}
                onDone={close}
                onCancel={close}
              />
            )}
            {failed !== null && <Failure error={failed} />}
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
  return (
    <div className="jp-edt-scroll">
      <table className="jp-edt-table">
        <thead>
          <tr>
            <th scope="col">Model</th>
            <th scope="col">Training engine</th>
            <th scope="col">Script</th>
            <th scope="col">Data set</th>
            <th scope="col" className="jp-mod-number">
              Maximum workers
            </th>
            <th scope="col">Trainings</th>
            <th scope="col">
              <span className="jp-edt-visually-hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {props.models.map(model => (
            <tr key={model.id}>
              <th scope="row">
                {model.name}
                {model.kind === 'template' && <span className="jp-edt-hint"> template</span>}
                {model.description !== '' && <div className="jp-edt-hint">{model.description}</div>}
              </th>
              <td>{model.framework}</td>
              <td title={model.origin}>{[model.main, ...model.args].join(' ')}</td>
              <td>{model.dataset || 'none'}</td>
              <td className="jp-mod-number">{model.max_workers}</td>
              <td>
                {model.trainings === 0 ? (
                  'none yet'
                ) : (
                  <button
                    type="button"
                    className="jp-edt-link"
                    onClick={() => props.onOpen({ what: 'show', id: model.id })}
                  >
                    {count(model.trainings, 'training')}
                  </button>
                )}
              </td>
              <td>
                <div className="jp-edt-row-actions">
                  {model.kind === 'model' && (
                    <button
                      type="button"
                      className="jp-edt-button"
                      aria-label={`Train ${model.name}`}
                      onClick={() => props.onOpen({ what: 'train', id: model.id })}
                    >
                      Train
                    </button>
                  )}
                  <button
                    type="button"
                    className="jp-edt-button"
                    aria-label={`Delete ${model.name}`}
                    onClick={() => props.onRemove(model)}
                  >
                    Delete
                  </button>
                </div>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
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
          <table className="jp-edt-table">
            <thead>
              <tr>
                <th scope="col">Job</th>
                <th scope="col">State</th>
                <th scope="col">Submitted</th>
              </tr>
            </thead>
            <tbody>
              {trainings.map(job => (
                <tr key={job.id}>
                  <th scope="row">
                    <button
                      type="button"
                      className="jp-edt-link"
                      onClick={() => void commands.execute(CommandIDs.openJob, { id: job.id, name: job.name })}
                    >
                      {job.name}
                    </button>
                  </th>
                  <td>
                    <State state={job.state} />
                  </td>
                  <td>{clock(job.created)}</td>
                </tr>
              ))}
            </tbody>
          </table>
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
