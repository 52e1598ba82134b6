/** The searches that have not ended, and those that have within the hour, above the jobs: one row each. */
import { useEffect, useState } from 'react';

import { CommandIDs, type Commands } from '../commands';
import type { Jobs } from '../jobs';
import { Standing } from '../search/standing';
import { SEARCH_LOOKS, headline } from '../search/words';
import { type ISearchView, isFinal } from '../views';

const EVERY_MS = 5_000;
const MOST = 20;
/** Of the newest so many those are shown that ended less than so many seconds ago. */
const ENDED = 5;
const SHOWN_S = 3600;

export function Searches(props: { jobs: Jobs; commands: Commands; visible: boolean }): JSX.Element | null {
  const { jobs, commands, visible } = props;
  const [shown, setShown] = useState<readonly ISearchView[]>([]);
  useEffect(() => {
    if (!visible || !commands.hasCommand(CommandIDs.openSearch)) {
      return;
    }
    let over = false;
    const ask = async (): Promise<void> => {
      try {
        const asked = [{ state: 'running', limit: MOST }, { state: 'paused', limit: MOST }, { limit: ENDED }].map(query =>
          jobs.api.request<{ searches: ISearchView[] }>('searches', { ...query, no_track_activity: 1 })
        );
        const found = (await Promise.all(asked)).flatMap(each => each.searches);
        const since = Date.now() / 1000 - SHOWN_S;
        if (!over) {
          const recent = found.filter(view => !isFinal(view.state) || (view.ended ?? 0) > since);
          setShown([...new Map(recent.map(view => [view.id, view])).values()]);
        }
      } catch {
        // The panel shows above that the server does not answer.
      }
    };
    void ask();
    const timer = setInterval(() => !document.hidden && void ask(), EVERY_MS);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [jobs, visible]);
  return shown.length === 0 ? null : (
    <ul className="jp-edt-searches" aria-label="Searches">
      {shown.map(view => (
        <li key={view.id}>
          <button
            type="button"
            className="jp-edt-search-row"
            onClick={() => void commands.execute(CommandIDs.openSearch, { id: view.id, name: view.spec.job.name })}
          >
            <span className="jp-edt-row-head">
              <Standing look={SEARCH_LOOKS[view.state]} />
              <b className="jp-edt-name">{view.spec.job.name}</b>
              <span className="jp-edt-row-slots">search</span>
            </span>
            <span className="jp-edt-row-says">{headline(view)}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}
