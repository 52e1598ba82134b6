/**
 * `edt:train` opens the train form, `edt:submit-notebook` opens it for the notebook in front, `edt:clone` with what a job
 * was made of, `edt:mend` beside the line at which it failed, or in front where no line did; `edt:try-example` submits the bundled one. Every start of its own (nothing, a notebook, a job) is a form of its own, kept over a reload.
 */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, Notification } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ReadonlyJSONObject } from '@lumino/coreutils';

import { allowed, meant } from '../actions/choose';
import { sentenceOf } from '../api';
import { CATEGORY, CommandIDs } from '../commands';
import { partsOf } from '../job/traceback';
import { trainIcon } from '../page/icons';
import { Opener } from '../page/opener';
import { IEdt } from '../tokens';
import type { IJobView } from '../views';

import { EMPTY, cloneOf } from './draft';
import type { Draft } from './draft';
import { FOLDER, submitExample } from './example';
import { openAt, placeOf } from './mend';
import { keepSource, sourceOf } from './sources_kept';
import { TrainPage } from './train_page';

const PLUGIN = 'jupyter-edt:train';

interface Args extends ReadonlyJSONObject {
  /** What the form was opened for; "" for nothing in particular. */
  key: string;
  /** Its answers by now. */
  draft: Record<string, string>;
  note: string;
  /** Of a job to mend why it failed; "" for nothing. */
  trouble: string;
}

/** The train form. */
export const train: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'The train form.',
  autoStart: true,
  requires: [IEdt],
  optional: [ILayoutRestorer, ICommandPalette, ILauncher, INotebookTracker, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    edt: IEdt,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    notebooks: INotebookTracker | null,
    settings: ISettingRegistry | null
  ): void => {
    const { commands } = app;
    const { contents } = app.serviceManager;
    const { baseUrl } = edt.api.transport;
    const notebookPath = (): string => notebooks?.currentWidget?.context.path ?? '';
    const kernelName = (): string => notebooks?.currentWidget?.sessionContext.session?.kernel?.name ?? '';
    const opener = new Opener<Args>(
      app,
      edt,
      {
        name: 'train',
        command: CommandIDs.train,
        icon: trainIcon,
        caption: 'Submit a training job.',
        key: args => args.key,
        label: () => 'Train',
        content: (args, page, keep) => (
          <TrainPage
            draft={{ ...EMPTY, ...args.draft }}
            note={args.note}
            trouble={args.trouble}
            notebook={notebookPath()}
            contents={contents}
            onDraft={draft => keep({ draft: { ...draft } })}
            onSubmitted={(job, draft) => {
              keepSource(baseUrl, job.id, draft);
              void commands.execute(CommandIDs.openJob, { id: job.id, name: job.name }).then(() => page.close());
            }}
            onSearch={({ id, spec }) =>
              void commands.execute(CommandIDs.openSearch, { id, name: spec.job.name }).then(() => page.close())
            }
          />
        )
      },
      restorer
    );
    const open = (key: string, draft: Partial<Draft>, note = '', trouble = ''): unknown =>
      opener.open({ key, note, trouble, draft: { ...EMPTY, kernel: kernelName(), ...draft } });

    commands.addCommand(CommandIDs.train, {
      label: 'Train …',
      caption: 'Submit a training job',
      icon: trainIcon,
      execute: args => {
        const given = typeof args['draft'] === 'object' ? (args['draft'] as Partial<Draft>) : {};
        const text = (name: string): string => (typeof args[name] === 'string' ? String(args[name]) : '');
        return open(text('key'), given, text('note'), text('trouble'));
      }
    });
    commands.addCommand(CommandIDs.submitNotebook, {
      label: 'Train This Notebook …',
      caption: 'Submit this notebook, or its cells with the tag edt, as a training job',
      icon: trainIcon,
      isEnabled: () => notebooks === null || notebooks.currentWidget !== null,
      execute: async () => {
        const panel = notebooks?.currentWidget ?? null;
        if (panel === null) {
          return open('', {});
        }
        const { context } = panel;
        let note = '';
        if (context.model.dirty && context.model.readOnly !== true) {
          try {
            await context.save();
          } catch {
            note = 'The notebook could not be saved: what is submitted is what was saved last.';
          }
        } else if (context.model.dirty) {
          note = 'The notebook cannot be written: what is submitted is what was saved last.';
        }
        const tagged = [...(panel.content.model?.cells ?? [])].some(cell => {
          const tags = cell.getMetadata('tags') as unknown;
          return Array.isArray(tags) && tags.includes('edt');
        });
        return open(context.path, { source: context.path, tag: tagged ? 'edt' : '' }, note);
      }
    });
    commands.addCommand(CommandIDs.clone, {
      label: 'Clone …',
      caption: 'Open the train form with what this job was made of',
      isVisible: args => args['short'] !== true || allowed(app, edt, CommandIDs.clone),
      icon: trainIcon,
      execute: async args => {
        const id = meant(app, args);
        const job: IJobView = await edt.api.job(id);
        const { source = '', tag = '' } = sourceOf(baseUrl, id) ?? {};
        return open(`clone-${id}`, { ...cloneOf(job), source, tag });
      }
    });
    /** The folders of the open documents, the one in front first, and the top folder. */
    const folders = (): string[] => {
      const open = [app.shell.currentWidget, ...app.shell.widgets('main')];
      const paths = open.map(widget => (widget as { context?: { path?: string } } | null)?.context?.path);
      return [...paths.filter(path => path !== undefined).map(path => PathExt.dirname(path)), ''];
    };
    commands.addCommand(CommandIDs.mend, {
      label: 'Mend and Run Again',
      caption: 'Open the line that failed, or where none did the form with the same settings',
      isVisible: args => args['short'] !== true || allowed(app, edt, CommandIDs.mend),
      icon: trainIcon,
      execute: async args => {
        const job = await edt.api.job(meant(app, args));
        const kept = sourceOf(baseUrl, job.id);
        const place = await placeOf(job, kept?.source ?? '', folders(), contents, edt.api);
        const { own, says, error } = partsOf(job.message);
        const trouble = says.includes(error) ? says : `${says} ${error}`;
        // A line that imports a module that is not installed is right.
        const failed = own !== null && !says.includes(' pip install ');
        const form = (draft: Partial<Draft>, note: string): unknown =>
          open(`mend-${job.id}`, { ...cloneOf(job), ...draft }, note, trouble);
        if (place === null) {
          const where = kept?.source ? `in ${kept.source}` : 'next to the open documents or in a folder there';
          const missing = `The submitted code of ${job.name} was not found ${where}.`;
          if (args['look'] === true) {
            // JupyterLab cuts a long message, so that what to do comes first.
            return Notification.warning(`Open one of its files and try again. ${missing}`, { autoClose: 10_000 });
          }
          return failed
            ? form({ code: 'files' }, `${missing} Say under “What to train” where it is, once it is mended.`)
            : form({}, `${missing} Submit it as the server has kept it, or choose “from the file browser” under Code.`);
        }
        if (args['look'] === true) {
          return openAt(app, place);
        }
        const { source, path, line } = place;
        const where = line > 0 ? `${path}, line ${line}` : path;
        const main = kept?.main ?? (source.endsWith('.py') ? '' : job.main);
        const draft = { code: 'files', source, main, tag: kept?.tag ?? '' };
        if (!failed) {
          // The fault is likelier elsewhere, so that the form comes to the front, and the code opens behind it.
          await openAt(app, place);
          const rather = own === null ? 'No line of the code failed. Change the arguments here' : 'Install the module';
          return form(draft, `${rather}, or change ${path}, and submit.`);
        }
        form(draft, `Mend ${where}, save it, and submit: the settings are those of ${job.name}.`);
        return openAt(app, place);
      }
    });
    commands.addCommand(CommandIDs.tryExample, {
      label: 'Try the Example',
      caption: 'Train a small network on digits, without any code of mine',
      icon: trainIcon,
      execute: async () => {
        try {
          const job = await submitExample(edt, contents);
          edt.jobs.put(job);
          keepSource(baseUrl, job.id, { source: FOLDER, main: job.main, tag: '' });
          await commands.execute(CommandIDs.openJob, { id: job.id, name: job.name });
        } catch (error) {
          Notification.error(sentenceOf(error), { autoClose: 10_000 });
        }
      }
    });
    notebooks?.currentChanged.connect(() => commands.notifyCommandChanged(CommandIDs.submitNotebook));
    for (const command of [CommandIDs.train, CommandIDs.tryExample]) {
      palette?.addItem({ command, category: CATEGORY });
    }
    palette?.addItem({ command: CommandIDs.submitNotebook, category: CATEGORY });
    launcher?.add({ command: CommandIDs.train, category: CATEGORY, rank: 1 });
    // The button in the notebooks' toolbar is in the plugin's schema, which counts once it is loaded.
    void settings?.load(PLUGIN);
  }
};
