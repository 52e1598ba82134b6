/** Data sets: what is registered, and a form for one more. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Answer, Empty } from '../page/standing';
import { type Column, Table } from '../page/table';
import { bytes, clock, count } from '../words';

import type { IDataset, IDatasets } from './answers';
import { DatasetForm } from './dataset_form';
import { Entries } from './entries';
import { useRemoval } from './removal';
import type { Uploads } from './uploads';

const SECONDS = 15;

/** The page of data sets; an upload that is under way is in its form again when one comes back. */
export function Datasets(props: { uploads: Uploads }): ReactElement {
  const { api } = useEdt();
  const answer = usePolled('datasets', () => api.request<IDatasets>('datasets', { no_track_activity: 1 }), SECONDS);
  const { uploads } = props;
  const [adding, setAdding] = useState(uploads.current !== null);
  const { failed, remove } = useRemoval(answer.again);
  return (
    <Answer of={answer} what="Looking for data sets">
      {({ datasets, types }) => (
        <Entries
          intro={
            <>
              A data set is a folder with a name. A job that uses it finds the folder in <code>DATA_DIR</code>.
            </>
          }
          add="Add a data set"
          adding={adding}
          onAdd={() => setAdding(true)}
          failed={failed}
          form={
            adding && (
              <DatasetForm
                types={types}
                uploads={uploads}
                onDone={() => {
                  setAdding(false);
                  answer.again();
                }}
                onCancel={() => setAdding(false)}
              />
            )
          }
        >
          {datasets.length === 0 ? (
            <Empty>
              <p>
                There is no data set yet. Add files of this computer, a folder of the file browser, or one of the
                server&apos;s data folder; your scripts can then be trained on it by its name.
              </p>
            </Empty>
          ) : (
            <Table
              rows={datasets}
              keyOf={dataset => dataset.id}
              columns={COLUMNS}
              actions={dataset => [
                {
                  label: 'Delete',
                  says: `Delete ${dataset.name}`,
                  run: () =>
                    remove({
                      name: dataset.name,
                      comesTo: consequences(dataset),
                      path: `datasets/${enc(dataset.name)}`
                    })
                }
              ]}
            />
          )}
        </Entries>
      )}
    </Answer>
  );
}

const COLUMNS: readonly Column<IDataset>[] = [
  {
    head: 'Data set',
    cell: dataset => (
      <>
        {dataset.name}
        {dataset.description !== '' && <div className="jp-edt-hint">{dataset.description}</div>}
        {dataset.trouble !== '' && <div className="jp-edt-field-error">✕ {dataset.trouble}</div>}
      </>
    )
  },
  { head: 'Type', cell: dataset => dataset.type },
  {
    head: 'Where',
    cell: dataset => (dataset.mode === 'copy' ? 'a copy of its own' : dataset.path || 'the whole data folder'),
    title: dataset => dataset.place
  },
  { head: 'Files', number: true, cell: dataset => dataset.files ?? 'not counted' },
  { head: 'Size', number: true, cell: dataset => (dataset.size === null ? '–' : bytes(dataset.size)) },
  { head: 'Added', cell: dataset => clock(dataset.created) },
  { head: 'Used by', cell: dataset => (dataset.jobs === 0 ? 'no job now' : count(dataset.jobs, 'job')) }
];

function consequences(dataset: IDataset): string {
  if (dataset.mode === 'reference') {
    return `The name goes; its files stay where they are (${dataset.place}).`;
  }
  const files = dataset.files === null ? 'Its files' : count(dataset.files, 'file');
  const size = dataset.size === null ? '' : `, ${bytes(dataset.size)},`;
  return `${files}${size} will be removed from the server. What they were copied from stays.`;
}
