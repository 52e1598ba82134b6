/** A host: its state, its slots in the colours of their jobs, what it has, and what can be done with it. */

import { useState } from 'react';
import type { CSSProperties, ReactElement } from 'react';

import { labDialogs } from '../actions/lab_dialogs';
import { enc } from '../api';
import { CommandIDs } from '../commands';
import { HOST_LOOKS } from '../looks';
import { useAction } from '../page/action';
import { Facts } from '../page/facts';
import { usePolled } from '../page/polled';
import { Answer, Failure } from '../page/standing';
import { useEdt } from '../page/surroundings';
import type { IHostView } from '../schemas';
import { Look } from '../state';
import type { IClusterJob, ISlot } from '../views';
import { bytes, clock, count } from '../words';

import { drainWords, heldThere, removeWords } from './consequences';

const LOG_SECONDS = 5;
// As `edt host list` calls them; another provider has the name that the server's configuration gives it.
const PROVIDERS: Record<string, string> = { machine: 'the server itself', local: 'the server', joined: 'edt host join' };

interface IHostCardProps {
  host: IHostView;
  slots: readonly ISlot[];
  jobs: ReadonlyMap<string, IClusterJob>;
  again: () => void;
}

export function HostCard(props: IHostCardProps): ReactElement {
  const { host, slots, jobs } = props;
  return (
    <section className="jp-edt-host" aria-label={`Host ${host.name}`}>
      <div className="jp-edt-job-title">
        <h3>{host.name}</h3>
        <Look look={HOST_LOOKS[host.state]} />
        <span className="jp-edt-hint">{inUse(host)}</span>
      </div>
      {host.why !== '' && <p className="jp-edt-reason">{host.why}</p>}
      {slots.length > 0 && (
        <ul className="jp-edt-host-slots" aria-label={`Slots of ${host.name}`}>
          {slots.map(slot => (
            <li key={slot.id}>
              <Slot slot={slot} job={slot.job === null ? undefined : jobs.get(slot.job)} />
            </li>
          ))}
        </ul>
      )}
      <p className="jp-edt-hint">{whose(slots, jobs)}</p>
      <Facts
        of={[
          ['Started by', PROVIDERS[host.provider] ?? host.provider],
          ['Load', host.load === null ? null : `${host.load.toFixed(2)} on ${count(host.cores, 'core')}`],
          ['GPUs', host.gpus.length === 0 ? null : host.gpus.join(', ')],
          ['Memory', host.memory === 0 ? null : `${host.memory_free === null ? '' : `${bytes(host.memory_free)} free of `}${bytes(host.memory)}`],
          ['Disk', host.disk_free === null ? null : `${bytes(host.disk_free)} free`],
          ['Address', host.address || null],
          ['Round trip', host.round_trip === null ? null : `${(1000 * host.round_trip).toFixed(1)} ms`],
          ['Kind', host.kind || null],
          ['Version', host.wheel || null],
          ['Since', host.since === 0 ? null : clock(host.since)]
        ]}
      />
      {host.provider !== 'machine' && <Verbs {...props} />}
    </section>
  );
}

/** How many of its slots are held. Those that it has withdrawn are held until their jobs have left them. */
function inUse(host: IHostView): string {
  if (host.slots > 0) {
    return `${host.used} of ${count(host.slots, 'slot')} in use`;
  }
  return host.used > 0 ? `${count(host.used, 'slot')} being given up` : '';
}

/** `first 2, second 1`: the names that belong to the colours. */
function whose(slots: readonly ISlot[], jobs: ReadonlyMap<string, IClusterJob>): string {
  return [...heldThere(slots)].map(([job, many]) => `${jobs.get(job)?.name || job} ${many}`).join(', ');
}

/** A square: whose slot it is, and which number it has, shown when it is pointed at; a click opens a job of mine. */
function Slot({ slot, job }: { slot: ISlot; job: IClusterJob | undefined }): ReactElement {
  const { jobs, commands } = useEdt();
  const held = slot.job === null ? 'free' : `${slot.leaving ? 'being given back' : 'held'} by ${job?.name || slot.job}`;
  const says = `Slot ${slot.id} (${slot.device}): ${held}`;
  const className = `jp-edt-host-slot${slot.job === null ? ' jp-mod-free' : ''}${slot.leaving ? ' jp-mod-leaving' : ''}`;
  const style = { '--jp-edt-colour': job?.colour } as CSSProperties;
  if (job === undefined || job.owner !== jobs.user) {
    return <span className={className} style={style} role="img" aria-label={says} title={says} />;
  }
  const open = (): void => void commands.execute(CommandIDs.openJob, { id: job.id });
  return <button type="button" className={className} style={style} aria-label={says} title={says} onClick={open} />;
}

function Verbs({ host, slots, jobs, again }: IHostCardProps): ReactElement {
  const { api } = useEdt();
  const { failed, act } = useAction(again);
  const [log, setLog] = useState(false);
  const path = `hosts/${enc(host.name)}`;
  const draining = host.state === 'draining';
  const drain = async (): Promise<void> => {
    if (draining || (await labDialogs.agreed(`Drain ${host.name}?`, drainWords(jobs, slots), 'Drain'))) {
      await api.request(`${path}/drain`, {}, 'POST', { draining: !draining });
    }
  };
  const remove = async (): Promise<void> => {
    if (await labDialogs.agreed(`Remove ${host.name}?`, removeWords(slots), 'Remove', true)) {
      await api.request(path, { force: host.used > 0 }, 'DELETE');
    }
  };
  return (
    <>
      {failed !== null && <Failure error={failed} />}
      <div className="jp-edt-form-end">
        <button type="button" className="jp-edt-button" onClick={() => void act(drain)} disabled={host.state === 'lost'}>
          {draining ? 'Undo drain' : 'Drain …'}
        </button>
        {/* A host of the server's configuration would be back at once. */}
        {host.provider !== 'local' && (
          <button type="button" className="jp-edt-button jp-mod-warn" onClick={() => void act(remove)}>
            Remove …
          </button>
        )}
        <button type="button" className="jp-edt-button" aria-expanded={log} onClick={() => setLog(!log)}>
          Log
        </button>
      </div>
      {log && <Log path={`${path}/log`} name={host.name} />}
    </>
  );
}

function Log({ path, name }: { path: string; name: string }): ReactElement {
  const { api } = useEdt();
  const answer = usePolled(path, () => api.request<{ log: string }>(path, { lines: 100, no_track_activity: 1 }), LOG_SECONDS);
  return (
    <Answer of={answer} what="Asking for the log">
      {({ log }) =>
        log === '' ? (
          <p className="jp-edt-hint">The server has no line of this agent.</p>
        ) : (
          <pre className="jp-edt-host-log" tabIndex={0} aria-label={`Log of the agent of ${name}`}>
            {log}
          </pre>
        )
      }
    </Answer>
  );
}
