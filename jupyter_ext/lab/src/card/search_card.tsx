/** A search in the output of a cell, as it is now: drawn from what the server says, not by the kernel. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { sentenceOf } from '../api';
import { LogIn } from '../login';
import { useEdt } from '../page/surroundings';
import { Tabs } from '../page/tabs';
import { Head, SearchPicture, Trials, isGone, useSearch } from '../search/parts';
import { pictureTabs } from '../search/tabs';
import { headline } from '../search/words';
import { type IKnown, type ISearchView } from '../views';
import type { IBundle } from './bundle';
import { standingOf } from './standing';

const BEST = 5;

/** `onStored` is told whether what the notebook stored says more than the card can. */
export function SearchCard(props: { bundle: IBundle<ISearchView>; onStored: (wanted: boolean) => void }): ReactElement {
  const { bundle, onStored } = props;
  const { api } = useEdt();
  const [tab, setTab] = useState('history');
  const search = useSearch(bundle.id);
  const gone = isGone(search.error);
  const known: IKnown<ISearchView> | undefined =
    search.value === null && search.error === null
      ? undefined
      : { view: search.value ?? undefined, taken: search.taken, gone, trouble: search.error === null || gone ? '' : sentenceOf(search.error) };
  const reach = { ok: true, says: '', error: search.error };
  const { kind, view, says, error } = standingOf(bundle, known, reach, api.transport.baseUrl, 'search');
  onStored(kind === 'elsewhere' || kind === 'deleted' || (kind !== 'asking' && !view));
  const live = kind === 'live';
  const name = view?.spec.job.name ?? bundle.id;
  return (
    <div className={`jp-edt-card jp-edt-card-${kind} jp-edt-search`} role="group" aria-label={view ? `Search ${name}: ${headline(view)}` : `Search ${name}`}>
      {view ? <Head view={view} live={live} open onChanged={search.tell} /> : <b>Search {name}</b>}
      {live && view ? (
        <Tabs
          label={`Views of ${name}`}
          chosen={tab}
          onChoose={setTab}
          tabs={[
            { key: 'history', label: 'History', content: () => <SearchPicture view={view} name="history" /> },
            ...pictureTabs(view),
            { key: 'best', label: 'Best trials', content: () => <Trials view={view} query={{ sort: 'value', limit: BEST }} /> }
          ]}
        />
      ) : null}
      <div className="jp-edt-age" role={live ? undefined : 'status'}>
        {says} <LogIn after={error} />
      </div>
    </div>
  );
}
