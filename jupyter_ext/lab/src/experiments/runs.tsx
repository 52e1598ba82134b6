/** The runs of an experiment in one table: sorted by a click on a head, filtered by words, chosen by check boxes. */

import { useState } from 'react';
import type { CSSProperties, ReactElement } from 'react';

import { enc } from '../api';
import { CommandIDs } from '../commands';
import { Facts } from '../page/facts';
import { Answer, Empty } from '../page/standing';
import { useEdt } from '../page/surroundings';
import { type Column, Table } from '../page/table';
import type { IRunTable } from '../catalogue_schemas';
import { Button, Progress, State } from '../state';
import type { JobState } from '../views';
import { count, grouped } from '../words';

import { ChosenRuns } from './chosen_runs';
import { type Row, cellWords, isLiving, matching, places } from './rows';
import { type Order, useRuns } from './runs_hook';

/** Rows that are drawn before more are asked for. */
const DRAWN = 200;
const HEADS: Record<string, string> = {
  ...{ name: 'Run', experiment: 'Experiment', state: 'State', duration: 'Duration', started: 'Started', max_workers: 'Workers' },
  ...{ seed: 'Seed', owner: 'Owner', tags: 'Tags', notes: 'Notes', versions: 'Versions' }
};

/** The runs of a project, or of one of its experiments ("" for all). */
export function Runs(props: { project: string; experiment: string }): ReactElement {
  const [order, setOrder] = useState<Order>({ by: '', desc: false });
  const answer = useRuns(props.project, props.experiment, order);
  return (
    <Answer of={answer} what="Looking for the runs">
      {table => <Comparison table={table} order={order} onOrder={setOrder} again={answer.again} />}
    </Answer>
  );
}

function Comparison(props: { table: IRunTable; order: Order; onOrder: (order: Order) => void; again: () => void }): ReactElement {
  const { table, order } = props;
  const { api } = useEdt();
  const [search, setSearch] = useState('');
  const [checked, setChecked] = useState<ReadonlySet<string>>(new Set());
  const [drawn, setDrawn] = useState(DRAWN);
  const now = Date.now() / 1000;
  const rows = matching(table.rows, search, now);
  const chosen = rows.filter(row => checked.has(idOf(row)));
  const sortBy = (by: string): void => {
    const first = table.columns.find(({ name }) => name === by)?.direction === 'maximize';
    props.onOrder({ by, desc: order.by === by ? !order.desc : first });
  };
  const check = (ids: readonly string[], on: boolean): void =>
    setChecked(old => new Set(on ? [...old, ...ids] : [...old].filter(id => !ids.includes(id))));
  const csv = { experiment: table.experiment, sort: order.by, desc: order.desc, limit: 10_000, format: 'csv' };
  return (
    <>
      <div className="jp-edt-toolbar">
        <input
          type="search"
          className="jp-edt-search"
          placeholder="Filter: lr=0.1 finished"
          aria-label="Only runs with these words"
          value={search}
          onChange={event => setSearch(event.target.value)}
        />
        <span className="jp-edt-hint" role="status">
          {rows.length === table.total ? '' : `${grouped(rows.length)} of `}
          {count(table.total, 'run')}
        </span>
        <ChosenRuns rows={chosen} again={props.again} />
        <a className="jp-edt-button jp-edt-download" href={api.url(`projects/${enc(table.project)}/runs`, csv)} download>
          Download CSV
        </a>
      </div>
      {rows.length === 0 && (
        <Empty>
          <p>No run has these words.</p>
        </Empty>
      )}
      {rows.length > 0 && (
        <Table
          label={`Runs of ${table.project} ${table.experiment}`.trimEnd()}
          rows={rows.slice(0, drawn)}
          keyOf={idOf}
          columns={columnsOf(table, now, checked, check)}
          sorted={{ ...order, onSort: sortBy }}
        />
      )}
      <div className="jp-edt-toolbar">
        {rows.length > 1 && (
          <label>
            <input type="checkbox" checked={chosen.length === rows.length} onChange={event => check(rows.map(idOf), event.target.checked)} />{' '}
            Choose all {grouped(rows.length)}
          </label>
        )}
        {rows.length > drawn && <Button onClick={() => setDrawn(rows.length)}>Show the other {grouped(rows.length - drawn)}</Button>}
      </div>
      <Same table={table} now={now} />
    </>
  );
}

/** What all runs have in common. */
function Same({ table, now }: { table: IRunTable; now: number }): ReactElement | null {
  const names = table.columns.map(({ name }) => name).filter(name => name in table.same && name !== 'name');
  return names.length === 0 ? null : (
    <section aria-label="The same in all runs">
      <h3>The same in all runs</h3>
      <Facts of={names.map(name => [HEADS[name] ?? name, cellWords(table.same, name, now)] as const)} />
    </section>
  );
}

function columnsOf(
  table: IRunTable,
  now: number,
  checked: ReadonlySet<string>,
  check: (ids: readonly string[], on: boolean) => void
): Column<Row>[] {
  const better = places(table);
  const shown = table.columns.filter(({ name }) => name === 'name' || (name !== 'job' && !(name in table.same)));
  const cellOf = (row: Row, name: string): ReactElement | string => {
    const place = better[name]?.get(row[name]);
    const text = name === 'name' && name in table.same ? idOf(row) : cellWords(row, name, now);
    if (name === 'name') {
      return <Name row={row} text={text} checked={checked.has(idOf(row))} onCheck={on => check([idOf(row)], on)} />;
    }
    return name === 'state' ? <Progressing row={row} /> : place === undefined ? text : <Figure text={text} place={place} />;
  };
  return shown.map(({ name }) => ({
    head: HEADS[name] ?? name,
    key: name,
    number: name !== 'started' && table.rows.every(row => typeof (row[name] ?? 0) === 'number'),
    cell: row => cellOf(row, name)
  }));
}

/** A check box, and a link to the tab of the job. */
function Name(props: { row: Row; text: string; checked: boolean; onCheck: (on: boolean) => void }): ReactElement {
  const { commands } = useEdt();
  const id = idOf(props.row);
  const open = { id, name: String(props.row['name']) };
  return (
    <span className="jp-edt-run-name" title={id}>
      <input type="checkbox" aria-label={`Choose ${id}`} checked={props.checked} onChange={event => props.onCheck(event.target.checked)} />
      <button type="button" className="jp-edt-link" onClick={() => void commands.execute(CommandIDs.openJob, open)}>
        {props.text}
      </button>
    </span>
  );
}

/** The state, and of a run that trains how far it is. */
function Progressing({ row }: { row: Row }): ReactElement {
  const { jobs } = useEdt();
  const view = isLiving(row) ? jobs.get(idOf(row))?.view : undefined;
  return (
    <>
      <State state={view?.state ?? (row['state'] as JobState)} />
      {view !== undefined && <Progress view={view} />}
    </>
  );
}

/** A metric with a bar, the longer the better beside the other runs; the best is in bold. */
function Figure({ text, place }: { text: string; place: number }): ReactElement {
  return (
    <span className={`jp-edt-run-figure${place === 1 ? ' jp-mod-best' : ''}`} style={{ '--jp-edt-share': place } as CSSProperties}>
      {text}
      {place === 1 && <span className="jp-edt-visually-hidden"> (the best)</span>}
    </span>
  );
}

function idOf(row: Row): string {
  return String(row['job']);
}
