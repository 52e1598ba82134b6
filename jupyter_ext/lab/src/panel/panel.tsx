/** The side panel: the machine's last hours on top, and the jobs below, mine or everybody's. */
import { useEffect, useMemo, useRef, useState } from 'react';

import { CommandIDs, type Commands } from '../commands';
import { useJobs } from '../hooks';
import { sentenceOf } from '../api';
import type { Jobs, Scope } from '../jobs';
import { LogIn } from '../login';
import { PictureImage } from '../picture_image';
import type { IQuotaUse } from '../schemas';
import { Button } from '../state';
import { folded, type IJobView } from '../views';
import { clock, demandWords, grouped, sentence } from '../words';
import { NoJobs, NoneChosen } from './empty';
import { ALL_OF_MINE, chosen, CHIPS, counts, type IChoice } from './filters';
import { Row, ROW_HEIGHT } from './row';
import { Searches } from './searches';
import { Listbox } from './listbox';

const TIMELINE_EVERY_MS = 5_000;
const QUOTAS_EVERY_MS = 60_000;

export interface IPanelProps {
  jobs: Jobs;
  commands: Commands;
  /** Nothing is asked for while the panel is closed. */
  visible: boolean;
  choice: IChoice;
  onChoice: (choice: IChoice) => void;
  /** Set until a row of the list has the focus that the panel was asked to take. */
  entering?: { current: boolean };
}

export function JobsPanel({ jobs, commands, visible, choice, onChoice, entering }: IPanelProps): JSX.Element {
  useJobs(jobs);
  const { scope, chips, search } = choice;
  const setScope = (next: Scope): void => onChoice({ ...choice, scope: next });
  useEffect(() => {
    if (!visible) {
      return;
    }
    const held = [jobs.watchList(scope), jobs.watchCluster()];
    return () => held.forEach(one => one.dispose());
  }, [jobs, scope, visible]);

  const list = jobs.list(scope);
  const views = list?.jobs ?? [];
  const shown = useMemo(() => chosen(views, chips, search), [list, chips, search]);
  const run = (command: string, args = {}): void => void commands.execute(command, args);
  const opens = commands.hasCommand(CommandIDs.openJob);
  return (
    <div className={`jp-edt-panel ${jobs.reach.ok ? '' : 'jp-edt-panel-old'}`}>
      <Head commands={commands} scope={scope} onScope={setScope} />
      <Trouble jobs={jobs} />
      <Machine jobs={jobs} visible={visible} />
      <Quotas jobs={jobs} visible={visible} />
      <Searches jobs={jobs} commands={commands} visible={visible} />
      <Filters views={views} chips={chips} search={search} onChoose={some => onChoice({ ...choice, ...some })} />
      {list === undefined ? (
        <p className="jp-edt-empty" role="status">
          {jobs.reach.ok ? 'Asking the server for its jobs …' : 'The list appears as soon as the server answers.'}
        </p>
      ) : !views.length ? (
        <NoJobs
          mine={scope === 'mine'}
          onTry={commands.hasCommand(CommandIDs.tryExample) ? () => commands.execute(CommandIDs.tryExample) : null}
          onTrain={commands.hasCommand(CommandIDs.train) ? () => run(CommandIDs.train) : null}
          onAll={() => setScope('all')}
        />
      ) : !shown.length ? (
        <NoneChosen
          hidden={views.length}
          onClear={() => onChoice({ ...ALL_OF_MINE, scope })}
        />
      ) : (
        <Listbox<IJobView>
          items={shown}
          rowHeight={ROW_HEIGHT}
          keyOf={view => view.id}
          label={scope === 'mine' ? 'My jobs, those that go on first' : 'Jobs of everybody, those that go on first'}
          row={view => <Row view={view} mine={view.owner === jobs.user} />}
          attributes={view => ({ 'data-edt-job': view.id, 'aria-label': sentence(view) })}
          entering={entering}
          onOpen={view => opens && run(CommandIDs.openJob, { id: view.id })}
        />
      )}
      {list?.more ? <Older jobs={jobs} scope={scope} there={views.length} /> : null}
    </div>
  );
}

/** There are older jobs than these: how many are here, and the next ones on demand. */
function Older({ jobs, scope, there }: { jobs: Jobs; scope: Scope; there: number }): JSX.Element {
  const [asking, setAsking] = useState(false);
  const [trouble, setTrouble] = useState('');
  const ask = async (): Promise<void> => {
    setAsking(true);
    try {
      await jobs.older(scope);
      setTrouble('');
    } catch (error) {
      setTrouble(sentenceOf(error));
    }
    setAsking(false);
  };
  return (
    <div className="jp-edt-foot">
      <span role="status">{trouble || `These are the newest ${grouped(there)} jobs; there are older ones.`} </span>
      <Button disabled={asking} onClick={() => void ask()}>
        {asking ? 'Asking …' : 'Show older'}
      </Button>
    </div>
  );
}

function Head(props: { commands: Commands; scope: Scope; onScope: (scope: Scope) => void }): JSX.Element {
  const { commands, scope, onScope } = props;
  const doors: [string, string, string][] = [
    [CommandIDs.train, 'Train …', 'Submit a training with a form'],
    [CommandIDs.openCluster, 'Slots', 'Slots and queues: who has what, and by which policy'],
    [CommandIDs.openExperiments, 'Experiments', 'Arguments and metrics of the runs of an experiment in a table'],
    [CommandIDs.openCatalogue, 'Catalogue', 'Data sets, models, versions, deployments and instance groups']
  ];
  return (
    <div className="jp-edt-panel-head">
      <div className="jp-edt-buttons" role="group" aria-label="Whose jobs">
        <Button pressed={scope === 'mine'} onClick={() => onScope('mine')}>
          Mine
        </Button>
        <Button pressed={scope === 'all'} onClick={() => onScope('all')}>
          Everybody’s
        </Button>
      </div>
      <div className="jp-edt-buttons">
        {doors
          .filter(([command]) => commands.hasCommand(command))
          .map(([command, label, title]) => (
            <Button key={command} title={title} onClick={() => void commands.execute(command)}>
              {label}
            </Button>
          ))}
      </div>
    </div>
  );
}

/** The server does not answer: since when, why, and what to do. */
function Trouble({ jobs }: { jobs: Jobs }): JSX.Element | null {
  if (jobs.reach.ok) {
    return null;
  }
  const seen = jobs.reach.seen ? `Last seen ${clock(jobs.reach.seen)}. ` : '';
  return (
    <div className="jp-edt-trouble" role="alert">
      <span aria-hidden="true">⚠︎ </span>
      {seen}
      {jobs.reach.says} <LogIn after={jobs.reach.error} />{' '}
      <Button onClick={() => void jobs.refresh()}>Ask now</Button>
    </div>
  );
}

/** Who held which slots lately, and how many are free now. */
function Machine({ jobs, visible }: { jobs: Jobs; visible: boolean }): JSX.Element | null {
  const [beat, setBeat] = useState(0);
  useEffect(() => {
    if (!visible) {
      return;
    }
    // At once too: what was drawn before the panel was closed is old.
    setBeat(n => n + 1);
    const timer = setInterval(() => !document.hidden && setBeat(n => n + 1), TIMELINE_EVERY_MS);
    return () => clearInterval(timer);
  }, [visible]);
  const version = useRef('');
  const cluster = jobs.cluster;
  if (!cluster) {
    return null;
  }
  if (visible) {
    version.current = `${beat} ${cluster.jobs.map(job => `${job.id}:${job.held}:${job.leaving}`).join()}`;
  }
  const total = cluster.slots.length;
  const free = total - cluster.slots.filter(slot => slot.job !== null).length;
  const says = total ? `${free} of ${total} slots are free` : 'The server offers no slots';
  return (
    <div className="jp-edt-machine">
      <PictureImage api={jobs.api} path="pictures/timeline" query={{ width: 320, legend: 'now' }} inline version={version.current} instead={null} />
      <div>{[says, ...demandWords(folded(cluster.jobs))].join(', ')}.</div>
    </div>
  );
}

/** A line for each quota that is nearly or quite used up. */
function Quotas({ jobs, visible }: { jobs: Jobs; visible: boolean }): JSX.Element | null {
  const [near, setNear] = useState<readonly IQuotaUse[]>([]);
  useEffect(() => {
    if (!visible) {
      return;
    }
    let over = false;
    const ask = async (): Promise<void> => {
      try {
        const found = await jobs.api.request<{ quotas: IQuotaUse[] }>('quota', { no_track_activity: 1 });
        if (!over) {
          setNear(found.quotas.filter(use => use.near));
        }
      } catch {
        // The panel shows above that the server does not answer.
      }
    };
    void ask();
    const timer = setInterval(() => !document.hidden && void ask(), QUOTAS_EVERY_MS);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [jobs, visible]);
  return near.length ? (
    <div className="jp-edt-machine" role="status">
      {near.map(use => (
        <div key={`${use.instance_group} ${use.quota}`}>Quota: {use.text}</div>
      ))}
    </div>
  ) : null;
}

interface IFiltersProps {
  views: readonly IJobView[];
  chips: ReadonlySet<string>;
  search: string;
  onChoose: (some: Partial<IChoice>) => void;
}

function Filters({ views, chips, search, onChoose }: IFiltersProps): JSX.Element | null {
  const many = counts(views);
  const toggle = (name: string): void => {
    const next = new Set(chips);
    if (!next.delete(name)) {
      next.add(name);
    }
    onChoose({ chips: next });
  };
  if (!views.length) {
    return null;
  }
  return (
    <div className="jp-edt-filters">
      <input
        type="search"
        className="jp-mod-styled"
        placeholder="Name, id, owner, group"
        aria-label="Search jobs"
        value={search}
        onChange={event => onChoose({ search: event.currentTarget.value })}
      />
      <div className="jp-edt-chips" role="group" aria-label="Only jobs in these states">
        {CHIPS.filter(chip => many[chip.name] || chips.has(chip.name)).map(chip => (
          <Button key={chip.name} className="jp-edt-chip" pressed={chips.has(chip.name)} onClick={() => toggle(chip.name)}>
            {chip.label} {many[chip.name]}
          </Button>
        ))}
      </div>
    </div>
  );
}
