/** Projects and their experiments: one is chosen, and its runs are compared in a table. */

import { useEffect, useState } from 'react';
import type { ReactElement } from 'react';

import type { ISignal } from '@lumino/signaling';

import { CommandIDs } from '../commands';
import { Answer, Empty } from '../page/standing';
import { useEdt } from '../page/surroundings';
import { Button } from '../state';
import { count } from '../words';

import { Runs } from './runs';
import { useProjects } from './runs_hook';

const EXAMPLE = `rates = client.project("mnist").experiment("rates")
for lr in (0.01, 0.1):
    rates.submit("my_folder", args=["--lr", lr])
`;

/** Which runs: of a project, and of one of its experiments, "" for all. */
export type Shown = { project: string; experiment: string };

/** `asked` brings other runs while the page is open; `onShown` is told of what is shown. */
export function ExperimentsPage(props: { shown: Shown; asked: ISignal<object, Shown>; onShown: (shown: Shown) => void }): ReactElement {
  const { commands } = useEdt();
  const [wanted, setWanted] = useState(props.shown);
  const projects = useProjects();
  const show = (next: Shown): void => {
    setWanted(next);
    props.onShown(next);
  };
  useEffect(() => {
    const onAsked = (_: object, next: Shown): void => show(next);
    props.asked.connect(onAsked);
    return () => {
      props.asked.disconnect(onAsked);
    };
  }, [props.asked]);
  return (
    <div className="jp-edt-experiments">
      <h2>Experiments</h2>
      <Answer of={projects} what="Looking for projects">
        {([newest, ...others]) => {
          if (newest === undefined) {
            return <NoProjects />;
          }
          const project = others.find(({ name }) => name === wanted.project) ?? newest;
          const experiment = project.experiments.some(({ name }) => name === wanted.experiment) ? wanted.experiment : '';
          const draft = { project: project.name, experiment };
          return (
            <>
              <div className="jp-edt-toolbar">
                <Choice
                  label="Project"
                  names={[newest, ...others].map(({ name, runs }) => [name, `${name} (${count(runs, 'run')})`])}
                  chosen={project.name}
                  onChoose={name => show({ project: name, experiment: '' })}
                />
                <Choice
                  label="Experiment"
                  names={[['', `all runs (${project.runs})`], ...project.experiments.map(({ name, runs }) => [name, `${name} (${count(runs, 'run')})`])]}
                  chosen={experiment}
                  onChoose={name => show({ project: project.name, experiment: name })}
                />
                <Button
                  title="Open the train form for another run of it"
                  onClick={() => void commands.execute(CommandIDs.train, { key: `${project.name}/${experiment}`, draft })}
                >
                  New run …
                </Button>
              </div>
              <Runs key={`${project.name}/${experiment}`} project={project.name} experiment={experiment} />
            </>
          );
        }}
      </Answer>
    </div>
  );
}

function Choice(props: {
  label: string;
  names: readonly (readonly string[])[];
  chosen: string;
  onChoose: (name: string) => void;
}): ReactElement {
  return (
    <label>
      {props.label}{' '}
      <select value={props.chosen} onChange={event => props.onChoose(event.target.value)}>
        {props.names.map(([name, label]) => (
          <option key={name} value={name}>
            {label}
          </option>
        ))}
      </select>
    </label>
  );
}

function NoProjects(): ReactElement {
  return (
    <Empty>
      <p>
        <b>You have no project yet.</b> A project and an experiment are labels of jobs, whose arguments and metrics are then
        compared in one table.
      </p>
      <p>Give the next job both, under <i>More</i> in the train form, or submit it from a cell:</p>
      <pre tabIndex={0}>{EXAMPLE}</pre>
      <p>A job that you have already gets them under <i>Project, tags and notes</i> in its tab.</p>
    </Empty>
  );
}
