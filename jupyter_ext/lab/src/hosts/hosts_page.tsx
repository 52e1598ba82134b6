/** Hosts: the machines that offer slots, one a card, and what lets another one join. */

import { useMemo, useState } from 'react';
import type { ReactElement } from 'react';

import { Copied } from '../page/copied';
import { useCluster } from '../page/cluster_hook';
import { BoxedForm, TextField, useForm, whole } from '../page/form';
import { usePolled } from '../page/polled';
import { Answer, Empty } from '../page/standing';
import { useEdt } from '../page/surroundings';
import type { IHostToken, IHostView } from '../schemas';
import { clock, count } from '../words';

import { slotsByHost } from './consequences';
import { HostCard } from './host_card';

const SECONDS = 2;

/** All of them, the server's own first. */
export function HostsPage(): ReactElement {
  const { api } = useEdt();
  const cluster = useCluster();
  const answer = usePolled('hosts', () => api.request<{ hosts: IHostView[] }>('hosts', { no_track_activity: 1 }), SECONDS);
  const [adding, setAdding] = useState(false);
  // Once for all cards: of a thousand hosts each would look through the slots of all.
  const slots = useMemo(() => slotsByHost(cluster), [cluster]);
  const jobs = useMemo(() => new Map(cluster?.jobs.map(job => [job.id, job])), [cluster]);
  return (
    <div className="jp-edt-hosts">
      <h2>Hosts</h2>
      <Answer of={answer} what="Looking for hosts">
        {({ hosts }) => (
          <>
            <p role="status" className="jp-edt-says">
              {says(hosts)}
            </p>
            {adding ? (
              <AddHost onClose={() => setAdding(false)} />
            ) : (
              <div className="jp-edt-toolbar">
                <button type="button" className="jp-edt-button jp-mod-accept" onClick={() => setAdding(true)}>
                  Add a host …
                </button>
              </div>
            )}
            {hosts.length === 0 && (
              <Empty>
                <p>No machine offers slots. Add a host, and jobs that wait begin there.</p>
              </Empty>
            )}
            <ul className="jp-edt-host-list">
              {hosts.map(host => (
                <li key={host.name}>
                  <HostCard host={host} slots={slots.get(host.name) ?? []} jobs={jobs} again={answer.again} />
                </li>
              ))}
            </ul>
          </>
        )}
      </Answer>
    </div>
  );
}

function says(hosts: readonly IHostView[]): string {
  // What a host that drains has withdrawn is no slot any more, and counts on its own card.
  const offering = hosts.filter(host => host.slots > 0);
  const [slots, used] = offering.reduce(([all, held], host) => [all + host.slots, held + host.used], [0, 0]);
  const others = (['starting', 'doubtful', 'draining', 'lost'] as const)
    .map(state => [hosts.filter(host => host.state === state).length, state] as const)
    .filter(([many]) => many > 0)
    .map(([many, state]) => `${many} ${state}`);
  return `${[count(hosts.length, 'host'), ...others, `${used} of ${count(slots, 'slot')} in use`].join(', ')}.`;
}

/** For how many machines and how long, and then the line that lets them join. */
function AddHost({ onClose }: { onClose: () => void }): ReactElement {
  const { api } = useEdt();
  const [made, setMade] = useState<IHostToken | null>(null);
  const form = useForm({ uses: '1', minutes: '60' }, async answers => {
    const wanted = { uses: whole(answers, 'uses', 1), seconds: 60 * whole(answers, 'minutes', 1) };
    setMade(await api.request<IHostToken>('hosts/tokens', {}, 'POST', wanted));
  });
  if (made === null) {
    return (
      <BoxedForm form={form} label="Add a host" send="Show the line" sending="Asking …" onCancel={onClose}>
        <TextField form={form} name="uses" label="Machines" type="number" min={1} hint="How many may join with the same line." />
        <TextField form={form} name="minutes" label="Minutes" type="number" min={1} hint="After these the line lets no other machine join." />
      </BoxedForm>
    );
  }
  return (
    <section className="jp-edt-boxed" aria-label="The line for the machine">
      <p>
        Run this on the machine, in a Python environment with jupyter-edt in this server&apos;s version:
      </p>
      <p role="status" className="jp-edt-host-line">
        <Copied text={made.command} />
      </p>
      <p className="jp-edt-hint">
        It is shown this once, and is as secret as a password. {made.uses === 1 ? 'One machine' : count(made.uses, 'machine')} may
        join with it, until {clock(made.expires)}. The host appears below as soon as it has joined.
      </p>
      <div className="jp-edt-form-end">
        <button type="button" className="jp-edt-button" onClick={onClose}>
          Close
        </button>
      </div>
    </section>
  );
}
