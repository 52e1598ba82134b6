/** Data sets: what is registered, and a form for one more. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Answer, Empty, Failure } from '../page/standing';
import { bytes, clock, count } from '../words';

import type { IDataset, IDatasets } from './answers';
import { DatasetForm } from './dataset_form';
import { useRemoval } from './removal';

const SECONDS = 15;

/** The page of data sets. */
export function Datasets(): ReactElement {
  const { api } = useEdt();
  const answer = usePolled('datasets', () => api.request<IDatasets>('datasets', { no_track_activity: 1 }), SECONDS);
  const [adding, setAdding] = useState(false);
  const { failed, remove } = useRemoval(answer.again);
  return (
    <Answer of={answer} what="Looking for data sets">
      {({ datasets, types }) => (
        <>
          <p className="jp-edt-hint">
            A data set is a folder with a name. A job that uses it finds the folder in <code>DATA_DIR</code>.
          </p>
          {!adding && (
            <div className="jp-edt-toolbar">
              <button type="button" className="jp-edt-button" onClick={() => setAdding(true)}>
                Add a data set
              </button>
            </div>
          )}
          {adding && (
            <DatasetForm
              types={types}
              onDone={() => {
                setAdding(false);
                answer.again();
              }}
              onCancel={() => setAdding(false)}
            />
          )}
          {failed !== null && <Failure error={failed} />}
          {datasets.length === 0 ? (
            <Empty>
              <p>
                There is no data set yet. Add files of this computer, a folder of the file browser, or one of the
                server&apos;s data folder; your scripts can then be trained on it by its name.
              </p>
            </Empty>
          ) : (
            <div className="jp-edt-scroll">
              <table className="jp-edt-table">
                <thead>
                  <tr>
                    <th scope="col">Data set</th>
                    <th scope="col">Type</th>
                    <th scope="col">Where</th>
                    <th scope="col" className="jp-mod-number">
                      Files
                    </th>
                    <th scope="col" className="jp-mod-number">
                      Size
                    </th>
                    <th scope="col">Added</th>
                    <th scope="col">Used by</th>
                    <th scope="col">
                      <span className="jp-edt-visually-hidden">Action</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {datasets.map(dataset => (
                    <tr key={dataset.id}>
                      <th scope="row">
                        {dataset.name}
                        {dataset.description !== '' && <div className="jp-edt-hint">{dataset.description}</div>}
                        {dataset.trouble !== '' && <div className="jp-edt-field-error">✕ {dataset.trouble}</div>}
                      </th>
                      <td>{dataset.type}</td>
                      <td title={dataset.place}>
                        {dataset.mode === 'copy' ? 'a copy of its own' : dataset.path || 'the whole data folder'}
                      </td>
                      <td className="jp-mod-number">{dataset.files ?? 'not counted'}</td>
                      <td className="jp-mod-number">{dataset.size === null ? '–' : bytes(dataset.size)}</td>
                      <td>{clock(dataset.created)}</td>
                      <td>{dataset.jobs === 0 ? 'no job now' : count(dataset.jobs, 'job')}</td>
                      <td>
                        <button
                          type="button"
                          className="jp-edt-button"
                          aria-label={`Delete ${dataset.name}`}
                          onClick={() =>
                            remove({
                              name: dataset.name,
                              comesTo: consequences(dataset),
                              path: `datasets/${enc(dataset.name)}`
                            })
                          }
                        >
                          Delete
                        </button>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </>
      )}
    </Answer>
  );
}

function consequences(dataset: IDataset): string {
  if (dataset.mode === 'reference') {
    return `The name goes; its files stay where they are (${dataset.place}).`;
  }
  const files = dataset.files === null ? 'Its files' : count(dataset.files, 'file');
  const size = dataset.size === null ? '' : `, ${bytes(dataset.size)},`;
  return `${files}${size} will be removed from the server. What they were copied from stays.`;
}
