/** What the card and the page of a search have in common: its name and state, what can be done, its pictures and trials. */

import { useEffect, useState } from 'react';
import type { ReactElement } from 'react';

import { labDialogs } from '../actions/lab_dialogs';
import { ApiError, type Query, enc } from '../api';
import { CommandIDs } from '../commands';
import { Picture } from '../page/picture';
import { type Polled, usePolled } from '../page/polled';
import { Answer, Empty, Failure } from '../page/standing';
import { useEdt } from '../page/surroundings';
import { type Column, Table } from '../page/table';
import { Button } from '../state';
import { type ISearchView, type ITrialView, isFinal } from '../views';
import { count, lossFigure } from '../words';

import { Standing } from './standing';
import { SEARCH_LOOKS, TRIAL_LOOKS, headline, valuesWords, verbs } from './words';

const LIVELY = 3;

/** How often a search is asked for: no more once it has ended. */
export function pauseOf(view: ISearchView | null): number | null {
  return view !== null && isFinal(view.state) ? null : LIVELY;
}

/** The search, followed while somebody looks and it has not ended. */
export function useSearch(id: string): Polled<ISearchView> {
  const { api } = useEdt();
  const [pause, setPause] = useState<number | null>(LIVELY);
  const search = usePolled(`search ${id}`, () => api.request<ISearchView>(`searches/${enc(id)}`, { no_track_activity: 1 }), pause);
  const next = pauseOf(search.value);
  useEffect(() => setPause(next), [next]);
  return search;
}

/** True when the server says that there is no such search. */
export function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.status === 404 && error.code !== '';
}

/** Name, state and how far it is, and what can be done; `open` puts a link to its page there. */
export function Head(props: { view: ISearchView; live: boolean; open: boolean; onChanged: (view: ISearchView) => void }): ReactElement {
  const { view, live, onChanged } = props;
  const { api, commands, jobs } = useEdt();
  const [failed, setFailed] = useState<unknown>(null);
  const name = view.spec.job.name;
  const mine = jobs.user === undefined || jobs.user === view.owner;
  const act = async (verb: string): Promise<void> => {
    const trains = view.counts['RUNNING'] ?? 0;
    const body = `${trains > 0 ? `${count(trains, 'trial')} that train${trains === 1 ? 's' : ''} will be stopped. ` : ''}The search can be resumed with the same trials.`;
    if (verb === 'stop' && !(await labDialogs.agreed(`Stop “${name}”?`, body, 'Stop', true))) {
      return;
    }
    try {
      setFailed(null);
      onChanged(await api.request<ISearchView>(`searches/${enc(view.id)}/${verb}`, {}, 'POST'));
    } catch (error) {
      setFailed(error);
    }
  };
  return (
    <>
      <div className="jp-edt-card-head">
        <Standing look={SEARCH_LOOKS[view.state]} />
        <b className="jp-edt-name">{name}</b>
        <span className="jp-edt-headline">{headline(view)}</span>
        {live && (
          <span className="jp-edt-buttons">
            {props.open && commands.hasCommand(CommandIDs.openSearch) && (
              <Button onClick={() => void commands.execute(CommandIDs.openSearch, { id: view.id, name })}>Open</Button>
            )}
            {(mine ? verbs(view) : []).map(([verb, label]) => (
              <Button key={verb} onClick={() => void act(verb)}>
                {label}
              </Button>
            ))}
          </span>
        )}
      </div>
      {view.message !== '' && view.state !== 'FINISHED' && <pre className={`jp-edt-search-message${view.state === 'FAILED' ? ' jp-edt-is-bad' : ''}`}>{view.message}</pre>}
      {failed !== null && <Failure error={failed} />}
    </>
  );
}

/** A picture of a search. */
export function SearchPicture(props: {
  view: ISearchView;
  name: string;
  query?: Record<string, string>;
  onDrawn?: (picture: SVGSVGElement) => void;
}): ReactElement {
  const { view, name, query, ...more } = props;
  return <Picture path={`searches/${enc(view.id)}/pictures/${name}`} query={query ?? {}} seconds={pauseOf(view)} what="Drawing the trials" {...more} />;
}

/** Some of a search's trials, those that `query` says; a click on a number opens the trial's job. */
export function Trials(props: { view: ISearchView; query: Query }): ReactElement {
  const { view, query } = props;
  const { api, commands } = useEdt();
  const path = `searches/${enc(view.id)}/trials`;
  const trials = usePolled(
    `${path} ${JSON.stringify(query)}`,
    async () => (await api.request<{ trials: ITrialView[] }>(path, { ...query, no_track_activity: 1 })).trials,
    pauseOf(view)
  );
  const columns: Column<ITrialView>[] = [
    {
      head: 'Trial',
      cell: trial =>
        trial.job === '' ? (
          trial.number
        ) : (
          <button
            type="button"
            className="jp-edt-link"
            aria-label={`Open the job of trial ${trial.number}`}
            onClick={() => void commands.execute(CommandIDs.openJob, { id: trial.job })}
          >
            {trial.number}
          </button>
        )
    },
    { head: view.spec.metric, number: true, cell: trial => (trial.value === null ? '–' : lossFigure(trial.value)) },
    { head: 'Epochs', number: true, cell: trial => trial.epochs || '–' },
    { head: 'State', cell: trial => <Standing look={TRIAL_LOOKS[trial.state]} />, title: trial => trial.message },
    { head: 'Values', cell: valuesWords }
  ];
  return (
    <Answer of={trials} what="Asking for the trials">
      {rows =>
        rows.length > 0 ? (
          <Table rows={rows} keyOf={trial => trial.number} columns={columns} label="Trials" />
        ) : (
          <Empty>
            <p>There is no trial yet.</p>
          </Empty>
        )
      }
    </Answer>
  );
}
