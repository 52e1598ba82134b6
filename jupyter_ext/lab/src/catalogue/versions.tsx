/** Versions of models: what was kept of which job, under which aliases; trained again or removed by a click. */

import type { ReactElement } from 'react';

import { labDialogs } from '../actions/lab_dialogs';
import { enc } from '../api';
import { CommandIDs, type Commands } from '../commands';
import { useAction } from '../page/action';
import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Answer, Empty, Failure } from '../page/standing';
import { type Column, Table } from '../page/table';
import type { IModelVersion } from '../catalogue_schemas';
import type { IJobView } from '../views';
import { bytes, clock, lossFigure } from '../words';

import { useRemoval } from './removal';

const SECONDS = 15;

/** The page of versions. `onDeploy` is given the one that is to answer requests. */
export function Versions({ onDeploy }: { onDeploy: (id: string) => void }): ReactElement {
  const { api, commands } = useEdt();
  const answer = usePolled('versions', () => api.request<{ versions: IModelVersion[] }>('versions', { no_track_activity: 1 }), SECONDS);
  const removal = useRemoval(answer.again);
  const { failed, act } = useAction(answer.again);
  const again = async (version: IModelVersion): Promise<void> => {
    const job = await api.request<IJobView>(`${pathOf(version)}/reproduce`, {}, 'POST');
    await commands.execute(CommandIDs.openJob, { id: job.id, name: job.name });
  };
  const name = async (version: IModelVersion): Promise<void> => {
    const asked = [{ name: 'alias', label: 'Alias, which means this version from now on', value: '' }];
    const told = await labDialogs.filled(`An alias for ${idOf(version)}`, asked, 'Give');
    if (told?.['alias']) {
      await api.request(`${pathOf(version)}/aliases/${enc(told['alias'])}`, {}, 'PUT');
    }
  };
  return (
    <>
      <p className="jp-edt-hint">
        A version keeps the weights and the code of a training, with everything they came from. <i>Keep …</i> in the tab of a finished job makes one.
      </p>
      {[failed, removal.failed].map((error, at) => error !== null && <Failure key={at} error={error} />)}
      <Answer of={answer} what="Looking for versions">
        {({ versions }) =>
          versions.length === 0 ? (
            <Empty>
              <p>There is no version yet.</p>
            </Empty>
          ) : (
            <Table
              rows={versions}
              keyOf={idOf}
              columns={columnsOf(commands)}
              actions={version => [
                { label: 'Deploy …', says: `Deploy ${idOf(version)}`, run: () => onDeploy(idOf(version)), disabled: version.trouble !== '' },
                { label: 'Alias …', says: `Give ${idOf(version)} an alias`, run: () => void act(() => name(version)) },
                { label: 'Train again', says: `Train ${idOf(version)} again`, run: () => void act(() => again(version)), disabled: version.trouble !== '' || version.sha256 === '' },
                {
                  label: 'Delete',
                  says: `Delete ${idOf(version)}`,
                  run: () => removal.remove({ name: idOf(version), comesTo: 'Its weights and its code are removed. Its number is not used again.', path: pathOf(version) })
                }
              ]}
            />
          )
        }
      </Answer>
    </>
  );
}

function columnsOf(commands: Commands): Column<IModelVersion>[] {
  return [
    {
      head: 'Version',
      cell: version => (
        <>
          {idOf(version)}
          {version.description !== '' && <div className="jp-edt-hint">{version.description}</div>}
          {version.trouble !== '' && <div className="jp-edt-field-error">✕ {version.trouble}</div>}
        </>
      ),
      title: version => `SHA-256 ${version.sha256 || version.code_sha256}`
    },
    { head: 'Aliases', cell: version => version.aliases.join(', ') || '–' },
    { head: 'Metrics', cell: metricsOf },
    {
      head: 'Job',
      cell: version =>
        version.job === '' ? (
          'made of a folder'
        ) : (
          <button type="button" className="jp-edt-link" onClick={() => void commands.execute(CommandIDs.openJob, { id: version.job, name: version.job_name })}>
            {version.job_name}
          </button>
        )
    },
    { head: 'Script', cell: version => [version.main, ...version.args].join(' ') },
    { head: 'Size', number: true, cell: version => bytes(version.size) },
    { head: 'Kept', cell: version => clock(version.created) }
  ];
}

function metricsOf({ metrics }: IModelVersion): string {
  const known = Object.entries(metrics).map(([name, value]) => `${name} ${value === null ? 'NaN' : lossFigure(value)}`);
  return known.join(', ') || '–';
}

function idOf(version: IModelVersion): string {
  return `${version.name}/${version.number}`;
}

function pathOf(version: IModelVersion): string {
  return `versions/${enc(version.name)}/${version.number}`;
}
