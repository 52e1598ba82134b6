/** The searches that have not ended, and those that have within the hour, above the jobs: one row each. */
import { useEffect, useState } from 'react';

import { CommandIDs, type Commands } from '../commands';
import type { Jobs } from '../jobs';
import { Standing } from '../search/standing';
import { SEARCH_LOOKS, headline } from '../search/words';
import type { ISearchView } from '../views';

const EVERY_MS = 5_000;
const MOST = 50;
const SHOWN_S = 3600; // after its end

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
        const query = { since: Date.now() / 1000 - SHOWN_S, limit: MOST, no_track_activity: 1 };
        const { searches } = await jobs.api.request<{ searches: ISearchView[] }>('searches', query);
        if (!over) {
          setShown(searches);
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
