/** The machine: which slot is whose, who is entitled to what, who holds it and who waits, and what happened lately. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { CommandIDs } from '../commands';
import { LogIn } from '../login';
import { useCluster } from '../page/cluster_hook';
import { useEdt } from '../page/surroundings';
import { useNow } from '../page/job_hook';
import { Picture } from '../page/picture';
import type { Stretch } from '../page/stretch';
import { ZoomablePicture } from '../page/zoomable';
import { Empty, Failure, Loading } from '../page/standing';
import { type Column, Table } from '../page/table';
import { clock, count, demandWords } from '../words';
import type { ICluster, IClusterJob } from '../views';

import { Groups } from './groups';

const PICTURES = 4;
const STRETCHES = [
  ['600', 'last 10 minutes', 600],
  ['3600', 'last hour', 3600],
  ['86400', 'last day', 86400],
  ['604800', 'last week', 604800]
] as const;

/** All of it, one below the other. */
export function ClusterPage(): ReactElement {
  const { jobs, commands } = useEdt();
  const cluster = useCluster();
  const now = useNow(5);
  const [last, setLast] = useState<string>('3600');
  const [stretch, setStretch] = useState<Stretch | null>(null);
  const { reach } = jobs;
  if (cluster === undefined) {
    return reach.ok ? (
      <Loading what="Asking for the slots" />
    ) : (
      <Failure error={reach.error} again={() => void jobs.refresh().catch(() => undefined)} />
    );
  }
  const length = Number(last);
  const end = Math.ceil(now / 10) * 10;
  return (
    <div className={reach.ok ? 'jp-edt-cluster' : 'jp-edt-cluster jp-mod-stale'}>
      {!reach.ok && (
        <div className="jp-edt-stale" role="status">
          <span aria-hidden="true">⚠ </span>
          Last seen {clock(reach.seen, now)}. {reach.says} <LogIn after={reach.error} />
        </div>
      )}
      {cluster.warnings?.map(warning => (
        <p key={warning} className="jp-edt-stale">
          <span aria-hidden="true">⚠ </span>
          {warning}
        </p>
      ))}
      <h2>Slots and queues</h2>
      <p role="status" className="jp-edt-says">
        {says(cluster)}
      </p>
      <div className="jp-edt-toolbar">
        <button
          type="button"
          className="jp-edt-button"
          onClick={() => void commands.execute(CommandIDs.openCatalogue, { tab: 'groups' })}
        >
          Change instance and resource groups
        </button>
        <button type="button" className="jp-edt-button" onClick={() => void commands.execute(CommandIDs.openHosts)}>
          Hosts
        </button>
      </div>
      <section aria-label="Slots">
        <h3>Slots</h3>
        {cluster.slots.length === 0 ? (
          <Empty>
            <p>
              This server offers no slot. It offers one for each GPU, else CPU shares: <code>c.EdtApp.local_slots</code> in
              the server&apos;s configuration says how many.
            </p>
          </Empty>
        ) : (
          <Picture path="pictures/slots" seconds={PICTURES} what="Drawing the slots" />
        )}
        {cluster.elsewhere.length > 0 && (
          <p className="jp-edt-hint">
            {cluster.elsewhere.map(each => each.device).join(', ')}: in use by jobs of another job store on this machine (
            {cluster.elsewhere[0]?.data_dir}).
          </p>
        )}
      </section>
      <section aria-label="Shares">
        <h3>Shares of the instance groups</h3>
        <Picture path="pictures/shares" seconds={PICTURES} what="Drawing the shares" />
        <Groups groups={cluster.groups} />
      </section>
      <section aria-label="Jobs">
        <h3>Jobs</h3>
        <JobTable jobs={cluster.jobs} onOpen={id => void commands.execute(CommandIDs.openJob, { id })} mine={jobs.user} />
      </section>
      <section aria-label="Who had which slots">
        <h3>Who had which slots</h3>
        <div className="jp-edt-toolbar">
          <label>
            Show the{' '}
            <select
              value={last}
              onChange={event => {
                setLast(event.target.value);
                setStretch(null);
              }}
            >
              {STRETCHES.map(([key, label]) => (
                <option key={key} value={key}>
                  {label}
                </option>
              ))}
            </select>
          </label>
          <span className="jp-edt-hint">Point at a tick to read what changed, and why.</span>
        </div>
        <ZoomablePicture
          path="pictures/timeline"
          query={{ start: end - length, end }}
          seconds={PICTURES}
          what="Drawing who had which slots"
          stretch={stretch}
          onStretch={setStretch}
          named={clock}
        />
      </section>
    </div>
  );
}

/** Jobs that have not ended, in order of arrival. */
function JobTable(props: {
  jobs: readonly IClusterJob[];
  mine: string | undefined;
  onOpen: (id: string) => void;
}): ReactElement {
  if (props.jobs.length === 0) {
    return (
      <Empty>
        <p>No job runs or waits: all slots are free.</p>
      </Empty>
    );
  }
  const columns: Column<IClusterJob>[] = [
    {
      head: 'Job',
      cell: job =>
        props.mine === job.owner ? (
          <button type="button" className="jp-edt-link" onClick={() => props.onOpen(job.id)}>
            {job.name || job.id}
          </button>
        ) : (
          job.name || job.id
        )
    },
    { head: 'Owner', cell: job => job.owner },
    { head: 'Instance group', cell: job => job.group },
    { head: 'Priority', number: true, cell: job => job.priority },
    { head: 'Holds', number: true, cell: job => `${job.held}${job.leaving > 0 ? ` (gives back ${job.leaving})` : ''}` },
    { head: 'Entitled to', number: true, cell: job => job.entitled },
    { head: 'Asked for', number: true, cell: job => job.asked },
    { head: 'Why not more', cell: job => job.reason || '–' }
  ];
  return <Table rows={props.jobs} keyOf={job => job.id} columns={columns} />;
}

function says(cluster: ICluster): string {
  const busy = cluster.slots.filter(slot => slot.job !== null).length;
  const parts = [`${busy} of ${count(cluster.slots.length, 'slot')} in use`, count(cluster.jobs.length, 'job')];
  return `${[...parts, ...demandWords(cluster.jobs)].join(', ')}.`;
}
