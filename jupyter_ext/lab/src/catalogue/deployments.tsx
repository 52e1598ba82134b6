/** Deployments: what answers requests under which name, tried out, given another version, rolled back or stopped. */

import { useEffect, useState } from 'react';
import type { ReactElement } from 'react';

import { labDialogs } from '../actions/lab_dialogs';
import { enc } from '../api';
import { CommandIDs } from '../commands';
import { useAction } from '../page/action';
import { Copied } from '../page/copied';
import { Facts } from '../page/facts';
import { usePolled } from '../page/polled';
import { Answer, Empty, Failure } from '../page/standing';
import { useEdt } from '../page/surroundings';
import { type Column, Table } from '../page/table';
import type { IDeploymentView, IModelVersion, IRevision } from '../catalogue_schemas';
import { clock } from '../words';

import { DeploymentForm } from './deployment_form';
import { useRemoval } from './removal';
import { TryIt } from './try_it';

const SECONDS = 2;

/** The page of deployments. Its form is open for the version `deploying`, until `onDecided`. */
export function Deployments({ deploying, onDecided }: { deploying: string; onDecided: () => void }): ReactElement {
  const { api } = useEdt();
  const answer = usePolled(
    'deployments',
    () => api.request<{ deployments: IDeploymentView[] }>('deployments', { no_track_activity: 1 }),
    SECONDS
  );
  const versions = usePolled(
    'versions to deploy',
    () => api.request<{ versions: IModelVersion[] }>('versions', { no_track_activity: 1 }),
    SECONDS * 5
  );
  const [chosen, setChosen] = useState('');
  const [making, setMaking] = useState(false);
  useEffect(() => {
    if (deploying !== '') {
      setMaking(true);
      versions.again(); // it may have been kept a moment ago
    }
  }, [deploying]);
  const known = versions.value?.versions ?? [];
  const listed = deploying === '' ? known.length > 0 : known.some(({ name, number }) => `${name}/${number}` === deploying);
  const close = (): void => {
    setMaking(false);
    onDecided();
  };
  return (
    <>
      <p className="jp-edt-hint">
        A deployment lets a version of a model answer requests. Its replicas have slots like those of trainings, as many as the load needs.
      </p>
      {making && listed ? (
        <DeploymentForm
          key={deploying}
          versions={known}
          version={deploying}
          onCancel={close}
          onDone={name => {
            close();
            setChosen(name);
            answer.again();
          }}
        />
      ) : (
        <div className="jp-edt-form-end">
          <button type="button" className="jp-edt-button jp-mod-accept" disabled={known.length === 0} onClick={() => setMaking(true)}>
            Deploy a version …
          </button>
        </div>
      )}
      <Answer of={answer} what="Looking for deployments">
        {({ deployments }) =>
          deployments.length === 0 ? (
            <Empty>
              <p>{known.length === 0 ? 'There is no version to deploy yet. Keep … in the tab of a finished job makes one.' : 'Nothing is deployed yet.'}</p>
            </Empty>
          ) : (
            <>
              <Table
                rows={deployments}
                keyOf={each => each.name}
                columns={columnsOf(setChosen)}
                actions={each => [{ label: 'Open', says: `Show ${each.name}`, run: () => setChosen(each.name) }]}
              />
              {deployments
                .filter(each => each.name === chosen)
                .map(each => (
                  <Details key={each.name} deployment={each} versions={known} again={answer.again} />
                ))}
            </>
          )
        }
      </Answer>
    </>
  );
}

function columnsOf(open: (name: string) => void): Column<IDeploymentView>[] {
  return [
    {
      head: 'Name',
      cell: each => (
        <button type="button" className="jp-edt-link" onClick={() => open(each.name)}>
          {each.name}
        </button>
      )
    },
    { head: 'State', cell: each => <State of={each} /> },
    { head: 'Serves', cell: each => each.version },
    { head: 'Replicas', cell: each => `${each.ready} of ${each.replicas[0]}–${each.replicas[1]}` },
    { head: 'Requests', number: true, cell: each => figure(answersOf(each)) },
    { head: 'Space', cell: each => each.space || '–' }
  ];
}

function State({ of }: { of: IDeploymentView }): ReactElement {
  return (
    <>
      {of.state.toLowerCase()}
      {of.message !== '' && <div className="jp-edt-hint">{of.message.split('\n', 1)[0]}</div>}
    </>
  );
}

/** One deployment: its address and keys, a request to try, and what it has served. */
function Details(props: { deployment: IDeploymentView; versions: readonly IModelVersion[]; again: () => void }): ReactElement {
  const { deployment, again } = props;
  const { api, commands } = useEdt();
  const { failed, act } = useAction(again);
  const [key, setKey] = useState('');
  const removal = useRemoval(again);
  const path = `deployments/${enc(deployment.name)}`;
  const does = (verb: string) => () => void act(() => api.request(`${path}/${verb}`, {}, 'POST', {}));
  const update = async (): Promise<void> => {
    const newest = props.versions.find(each => each.name === deployment.version.split('/', 1)[0]);
    const value = newest === undefined ? deployment.version : `${newest.name}/${newest.number}`;
    const told = await labDialogs.filled(
      `Another version for ${deployment.name}`,
      [
        { name: 'version', label: 'Version, such as digits/3 or digits@champion', value },
        { name: 'canary', label: 'Percent of the callers that it answers first (empty: it takes over when it is ready)', value: '' }
      ],
      'Start'
    );
    if (told?.['version']) {
      const { max_batch, exact, deadline } = deployment.revisions[0] as IRevision;
      const canary = told['canary'] ? Number(told['canary']) : null;
      await api.request(`${path}/revisions`, {}, 'POST', { version: told['version'], canary, max_batch, exact, deadline });
    }
  };
  const newKey = async (): Promise<void> => {
    const told = await labDialogs.filled('A key for callers', [{ name: 'name', label: 'Who it is for, such as shop', value: '' }], 'Make');
    if (told?.['name']) {
      setKey((await api.request<{ key: string }>(`${path}/keys`, {}, 'POST', { name: told['name'] })).key);
    }
  };
  const revoke = async (id: string, name: string): Promise<void> => {
    if (await labDialogs.agreed(`Revoke the key ${name}?`, 'Requests with it are refused from now on.', 'Revoke', true)) {
      await api.request(`${path}/keys/${enc(id)}`, {}, 'DELETE');
    }
  };
  const coming = deployment.revisions.find(each => each.outcome === '' && each.version !== deployment.version);
  const newest = deployment.revisions[0];
  const stopped = deployment.state === 'STOPPED' || deployment.state === 'FAILED';
  return (
    <section className="jp-edt-boxed" aria-label={`The deployment ${deployment.name}`}>
      <h3>{deployment.name}</h3>
      {[failed, removal.failed].map((error, at) => error !== null && <Failure key={at} error={error} />)}
      <Facts
        of={[
          ['State', <State of={deployment} />],
          ['Address', <Copied text={deployment.url || 'none while nothing answers'} />],
          ['Replicas', `${deployment.ready} answer, ${deployment.wanted} wanted, in ${deployment.slots} ${deployment.slots === 1 ? 'slot' : 'slots'}`],
          ['Answers', answersOf(deployment) === 0 ? 'none yet' : `${figure(answersOf(deployment))}, ${figure(failuresOf(deployment))} of them failed`]
        ]}
      />
      <div className="jp-edt-form-end">
        <button type="button" className="jp-edt-button" onClick={() => void act(update)} disabled={coming !== undefined}>
          Another version …
        </button>
        {coming !== undefined && (
          <>
            <button type="button" className="jp-edt-button" onClick={does('promote')}>
              Let {coming.version} answer all
            </button>
            <button type="button" className="jp-edt-button" onClick={does('abort')}>
              Give {coming.version} up
            </button>
          </>
        )}
        <button type="button" className="jp-edt-button" onClick={does('rollback')} disabled={deployment.revisions.length < 2}>
          Roll back
        </button>
        <button type="button" className="jp-edt-button" onClick={does(stopped ? 'start' : 'stop')}>
          {stopped ? 'Start' : 'Stop'}
        </button>
        {newest !== undefined && (
          <button type="button" className="jp-edt-button" onClick={() => void commands.execute(CommandIDs.openJob, { id: newest.job, name: deployment.name })}>
            Log and story
          </button>
        )}
        <button
          type="button"
          className="jp-edt-button"
          onClick={() => removal.remove({ name: `the deployment ${deployment.name}`, comesTo: 'Its replicas end, and its keys are forgotten. Its versions stay.', path })}
        >
          Delete
        </button>
      </div>
      <TryIt deployment={deployment} />
      <h4>Keys</h4>
      {deployment.public && <p className="jp-edt-hint">Everybody who can reach this server may call it, without a key.</p>}
      {key !== '' && (
        <p role="status">
          <Copied text={key} /> <span className="jp-edt-hint">It is shown this once.</span>
        </p>
      )}
      <ul className="jp-edt-plain-list">
        {deployment.keys.map(each => (
          <li key={each.id}>
            {each.name} ({each.id}
            {each.expires !== null && `, until ${clock(each.expires)}`}){' '}
            <button type="button" className="jp-edt-link" onClick={() => void act(() => revoke(each.id, each.name))}>
              Revoke
            </button>
          </li>
        ))}
      </ul>
      <button type="button" className="jp-edt-button" onClick={() => void act(newKey)}>
        New key …
      </button>
      <h4>Revisions</h4>
      <Table rows={deployment.revisions} keyOf={each => String(each.number)} columns={REVISIONS} />
    </section>
  );
}

const REVISIONS: Column<IRevision>[] = [
  { head: 'Revision', number: true, cell: each => each.number },
  { head: 'Version', cell: each => each.version },
  { head: 'Answers', number: true, cell: each => (each.share === 0 ? '' : `${each.share} %`) },
  { head: 'Since', cell: each => clock(each.created) },
  { head: 'By', cell: each => each.by },
  { head: 'Outcome', cell: each => each.outcome }
];

function figure(count: number): string {
  return count.toLocaleString('en');
}

function answersOf(deployment: IDeploymentView): number {
  return counted(deployment, () => true);
}

function failuresOf(deployment: IDeploymentView): number {
  return counted(deployment, status => status >= 500);
}

function counted(deployment: IDeploymentView, wanted: (status: number) => boolean): number {
  return Object.values(deployment.counters)
    .flatMap(({ requests }) => Object.entries(requests ?? {}))
    .reduce((sum, [status, count]) => sum + (wanted(Number(status)) ? count : 0), 0);
}
