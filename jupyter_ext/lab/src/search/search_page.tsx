/** The tab of a search: how far it is, its history, its comparisons and its trials. */

import { useEffect, useState } from 'react';
import type { ReactElement } from 'react';

import { ApiError } from '../api';
import { Failure, Loading, Stale } from '../page/standing';
import { type Tab, Tabs } from '../page/tabs';
import { Button } from '../state';
import type { ISearchView } from '../views';
import { count, grouped } from '../words';

import { Head, SearchPicture, Trials, isGone, useSearch } from './parts';
import { pictureTabs } from './tabs';

const PAGE = 50;

/** `tab` is what to begin with; `onTab` is told of another, and `onNamed` of the search's name. */
export function SearchPage(props: { id: string; tab: string; onTab: (tab: string) => void; onNamed: (name: string) => void }): ReactElement {
  const { id } = props;
  const search = useSearch(id);
  const [tab, setTab] = useState(props.tab);
  const view = search.value;
  const name = view?.spec.job.name;
  useEffect(() => {
    if (name !== undefined) {
      props.onNamed(name);
    }
  }, [name]);
  if (isGone(search.error)) {
    const hint = 'Close this tab, or open another search from the command palette.';
    return <Failure error={new ApiError(404, `There is no search ${id} any more: it was deleted.`, '', hint)} />;
  }
  if (view === null) {
    return search.error === null ? <Loading what={`Looking for search ${id}`} /> : <Failure error={search.error} again={search.again} />;
  }
  const tabs: Tab[] = [
    { key: 'history', label: 'History', content: () => <HistoryTab view={view} /> },
    ...pictureTabs(view),
    { key: 'trials', label: 'Trials', content: () => <TrialsTab view={view} /> }
  ];
  return (
    <div className={`jp-edt-search${search.error === null ? '' : ' jp-mod-stale'}`}>
      <Stale error={search.error} taken={search.taken} again={search.again} />
      <Head view={view} live open={false} onChanged={search.tell} />
      <Tabs
        label={`Views of ${name}`}
        chosen={tab || 'history'}
        onChoose={key => {
          setTab(key);
          props.onTab(key);
        }}
        tabs={tabs}
      />
    </div>
  );
}

function HistoryTab({ view }: { view: ISearchView }): ReactElement {
  const [x, setX] = useState('number');
  return (
    <>
      <div className="jp-edt-toolbar">
        <label>
          Over{' '}
          <select value={x} onChange={event => setX(event.target.value)}>
            <option value="number">the number of the trial</option>
            <option value="time">the time of its end</option>
          </select>
        </label>
      </div>
      <SearchPicture view={view} name="history" query={{ x }} />
    </>
  );
}

function TrialsTab({ view }: { view: ISearchView }): ReactElement {
  const [sort, setSort] = useState('value');
  const [skip, setSkip] = useState(0);
  const known = Object.values(view.counts).reduce((sum, each) => sum + each, 0);
  const query = sort === 'value' ? { sort, skip, limit: PAGE } : { after: skip - 1, limit: PAGE };
  return (
    <>
      <div className="jp-edt-toolbar">
        <label>
          Sorted by{' '}
          <select
            value={sort}
            onChange={event => {
              setSort(event.target.value);
              setSkip(0);
            }}
          >
            <option value="value">value, the most epochs first</option>
            <option value="number">number</option>
          </select>
        </label>
        {known > PAGE && (
          <span className="jp-edt-buttons">
            <Button disabled={skip === 0} onClick={() => setSkip(Math.max(0, skip - PAGE))}>
              Previous
            </Button>
            <Button disabled={skip + PAGE >= known} onClick={() => setSkip(skip + PAGE)}>
              Next
            </Button>
            <span role="status">
              {grouped(skip + 1)} to {grouped(Math.min(known, skip + PAGE))} of {count(known, 'trial')}
            </span>
          </span>
        )}
      </div>
      <Trials view={view} query={query} />
    </>
  );
}
