/**
 * The front end of the monitor's widget, an ES module for anywidget (https://anywidget.dev).
 *
 * On a page of JupyterLab or Notebook that comes from the kernel's server the extension there draws the monitor, and the
 * browser talks to the server itself. Elsewhere this module draws the same component and talks through the kernel.
 */
import { useState } from 'react';
import type { ReactElement } from 'react';
import { createRoot } from 'react-dom/client';

import type { Dialogs } from '../actions/dialogs';
import * as verbs from '../actions/verbs';
import { Api, sentenceOf } from '../api';
import { isElsewhere } from '../card/bundle';
import { copyText } from '../clipboard';
import { CommandIDs, type Commands } from '../commands';
import { Jobs } from '../jobs';
import type { IEdt } from '../tokens';
import type { IJobView } from '../views';

import { findHost } from './host';
import { KernelTransport, type Model } from './kernel_transport';
import { Monitor, type Place } from './monitor';
import { pageDialogs } from './page_dialogs';
import { styled } from './styles';

/** Seconds after which the kernel is told again that this is shown; it watches for three times as long. */
const SEEN_EVERY = 10;

function render(context: { model: Model; el: HTMLElement }): () => void {
  const { model, el } = context;
  const place: Place = { job: String(model.get('job')), tab: '', asking: false, compared: [] };
  const origin = String(model.get('origin'));
  const host = findHost();
  const remove =
    host !== undefined && !isElsewhere(origin, host.baseUrl) ? host.mount(el, place) : standalone(model, el, place, origin);
  const tell = (kind: string): void => {
    try {
      model.send({ kind });
    } catch {
      // The kernel is gone, and its monitor with it.
    }
  };
  tell('seen');
  const timer = setInterval(() => tell('seen'), 1000 * SEEN_EVERY);
  return () => {
    clearInterval(timer);
    remove();
    tell('gone');
  };
}

function standalone(model: Model, el: HTMLElement, place: Place, origin: string): () => void {
  styled(el);
  const transport = new KernelTransport(model, origin);
  const api = new Api(transport);
  const jobs = new Jobs(api, undefined);
  const root = createRoot(el.appendChild(document.createElement('div')));
  root.render(<Standalone begin={place} edt={{ api, jobs }} dialogs={pageDialogs(el)} />);
  return () => {
    root.unmount();
    jobs.dispose();
    transport.dispose();
  };
}

/** A monitor with commands of its own: what JupyterLab opens in a tab is shown in its place, with a way back. */
function Standalone(props: { begin: Place; edt: IEdt; dialogs: Dialogs }): ReactElement {
  const { begin, edt, dialogs } = props;
  const [place, setPlace] = useState(begin);
  const [surroundings] = useState(() => ({ ...edt, commands: commands(edt, dialogs, setPlace) }));
  return (
    <>
      {place !== begin && (
        <button type="button" className="jp-edt-link" onClick={() => setPlace(begin)}>
          ← Back
        </button>
      )}
      <Monitor place={place} surroundings={surroundings} />
    </>
  );
}

const VERBS: Record<string, (edt: IEdt, view: IJobView, dialogs: Dialogs) => Promise<void>> = {
  [CommandIDs.suspend]: verbs.suspend,
  [CommandIDs.resume]: verbs.resume,
  [CommandIDs.stop]: verbs.stop,
  [CommandIDs.update]: verbs.update,
  [CommandIDs.download]: verbs.download,
  [CommandIDs.copyPython]: verbs.copyPython,
  [CommandIDs.delete]: verbs.remove,
  [CommandIDs.clone]: async (_, view, dialogs) => {
    copyText(cloneLine(view));
    dialogs.notify('Copied the line of Python that submits a job like this one: paste it into a cell.');
  }
};

function commands(edt: IEdt, dialogs: Dialogs, go: (place: Place) => void): Commands {
  const nowhere: Place = { job: '', tab: '', asking: false, compared: [] };
  const places: Record<string, (args: Record<string, unknown>) => Place> = {
    [CommandIDs.openJob]: args => ({ ...nowhere, job: String(args['id']) }),
    [CommandIDs.validate]: args => ({ ...nowhere, job: String(args['id']), tab: 'validation', asking: true }),
    [CommandIDs.compare]: args => ({ ...nowhere, tab: 'compare', compared: args['ids'] as string[] })
  };
  return {
    hasCommand: id => id in VERBS || id in places,
    execute: async (id, args = {}) => {
      if (places[id] !== undefined) {
        go(places[id](args));
        return;
      }
      try {
        await VERBS[id]?.(edt, await edt.api.job(String(args['id'])), dialogs);
      } catch (error) {
        dialogs.notify(sentenceOf(error));
      }
    }
  };
}

/** `client.job(…).clone(…)` with the settings that people change from one run to the next. */
function cloneLine(view: IJobView): string {
  const args = view.args.length > 0 ? [`args=${JSON.stringify(view.args)}`] : [];
  const settings = [
    `name=${JSON.stringify(view.name)}`,
    `max_workers=${view.max_workers}`,
    `priority=${view.priority}`,
    ...args
  ];
  return `client.job("${view.id}").clone(\n${settings.map(each => `    ${each},\n`).join('')})`;
}

export default { render };
