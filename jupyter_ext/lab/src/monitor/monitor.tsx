/** The widget of `job.monitor()` and `client.monitor()`: the tab of a job, or the jobs and slots of a server, in a cell. */

import { useEffect, useRef, useState } from 'react';
import type { ReactElement } from 'react';

import { Signal } from '@lumino/signaling';

import { ClusterPage } from '../cluster/cluster_page';
import { ComparePage } from '../compare/compare_page';
import { JobPage, type Shows } from '../job/job_page';
import { Boundary } from '../page/boundary';
import { Shown } from '../page/shown';
import { EdtContext, type Surroundings, useEdt } from '../page/surroundings';
import { Tabs } from '../page/tabs';
import { ALL_OF_MINE } from '../panel/filters';
import { JobsPanel } from '../panel/panel';

/** What a monitor shows. */
export interface Place {
  /** Id of a job, "" for all of the server. */
  readonly job: string;
  /** The view it begins with, "" for the first. */
  readonly tab: string;
  /** The form for a validation is open. */
  readonly asking: boolean;
  /** Jobs whose curves are compared. */
  readonly compared: readonly string[];
}

const never = new Signal<object, never>({});
const ignore = (): void => undefined;

/** The monitor in its cell. Nothing is asked for while the cell is scrolled out of view or the browser's tab is hidden. */
export function Monitor(props: { place: Place; surroundings: Surroundings }): ReactElement {
  const { place } = props;
  const box = useRef<HTMLDivElement>(null);
  const shown = useInView(box);
  return (
    <div className="jp-edt-page jp-edt-monitor" ref={box}>
      <EdtContext.Provider value={props.surroundings}>
        <Shown.Provider value={shown}>
          <Boundary>
            {place.job === '' ? (
              <Server key={place.compared.join()} place={place} shown={shown} />
            ) : (
              <JobPage
                key={`${place.job} ${place.tab}`}
                id={place.job}
                begin={{ tab: place.tab, asking: place.asking }}
                asked={never as Signal<object, { readonly id: string } & Shows>}
                onShows={ignore}
                onNamed={ignore}
              />
            )}
          </Boundary>
        </Shown.Provider>
      </EdtContext.Provider>
    </div>
  );
}

/** The jobs, slots and curves of a server. */
function Server(props: { place: Place; shown: boolean }): ReactElement {
  const { jobs, commands } = useEdt();
  const [tab, setTab] = useState(props.place.tab || 'jobs');
  const [compared, setCompared] = useState(props.place.compared);
  const [choice, setChoice] = useState(ALL_OF_MINE);
  return (
    <Tabs
      label="Views of the server"
      chosen={tab}
      onChoose={setTab}
      tabs={[
        { key: 'jobs', label: 'Jobs', content: () => <JobsPanel jobs={jobs} commands={commands} visible={props.shown} choice={choice} onChoice={setChoice} /> },
        { key: 'slots', label: 'Slots', content: () => <ClusterPage /> },
        {
          key: 'compare',
          label: 'Compare',
          content: () => <ComparePage ids={compared} onChosen={setCompared} />
        }
      ]}
    />
  );
}

/** True while the element is on the screen of a visible page. */
function useInView(box: { readonly current: HTMLElement | null }): boolean {
  const [inView, setInView] = useState(false);
  const [awake, setAwake] = useState(!document.hidden);
  useEffect(() => {
    const onAwake = (): void => setAwake(!document.hidden);
    const observer = new IntersectionObserver(seen => setInView(seen.at(-1)?.isIntersecting ?? false));
    if (box.current !== null) {
      observer.observe(box.current);
    }
    document.addEventListener('visibilitychange', onAwake);
    return () => {
      observer.disconnect();
      document.removeEventListener('visibilitychange', onAwake);
    };
  }, [box]);
  return inView && awake;
}
