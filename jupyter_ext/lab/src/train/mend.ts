/** Where the script of a failed job lies now: the file that has the line of its traceback, as the server's files have it. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { PathExt } from '@jupyterlab/coreutils';
import type { Contents } from '@jupyterlab/services';

import { type Api } from '../api';
import { type Frame, partsOf, sourceOf } from '../job/traceback';
import type { IJobView } from '../views';

import type { IPreview } from './answers';

/** Folders beside an open document that are looked into at most, the last changed first. */
const MOST = 50;

/** A file to mend. */
export interface Place {
  /** The folder, script or notebook that the job was packed from, as the file browser names it. */
  readonly source: string;
  readonly path: string;
  /** Counted from 1; 0 where no line is known. */
  readonly line: number;
}

/**
 * Find the file to mend, null when it is not among the server's files.
 *
 * A job that was submitted from this browser has a known `source`. A kernel packs a folder without a word to the server, so
 * for its jobs the folders of the open documents are tried, and in each the one with the job's name, and taken where the line
 * is the one that failed. A `train()` call has no source in the message, so that a line with such a call is taken. In all
 * other folders beside the documents, and where no line failed, the file must be as large as the one that was submitted.
 */
export async function placeOf(
  job: IJobView,
  source: string,
  folders: readonly string[],
  contents: Contents.IManager,
  api: Api
): Promise<Place | null> {
  const { own } = partsOf(job.message);
  // A `train()` call is named without its folder.
  const called = own?.text.length === 0;
  const main = called && PathExt.basename(job.main) === own?.file;
  const frame: Pick<Frame, 'file' | 'line'> = own === null || main ? { file: job.main, line: own?.line ?? 0 } : own;
  if (/\.(py|ipynb)$/.test(source)) {
    const itself = source.endsWith('.py') && PathExt.basename(source) === PathExt.basename(frame.file);
    return { source, path: source, line: itself ? frame.line : 0 };
  }
  const named = [...new Set(folders.flatMap(folder => [PathExt.join(folder, job.name), folder]))];
  const tried = source === '' ? [...named, ...(await beside(folders, contents))] : [source];
  const size = source === '' ? await sizeOf(frame.file, job, api) : -1;
  for (const folder of new Set(tried)) {
    const path = PathExt.join(folder, frame.file);
    const model = await contents.get(path, { type: 'file', format: 'text', content: true }).catch(() => null);
    const lines = typeof model?.content === 'string' ? model.content.split('\n') : null;
    const there = own === null ? undefined : lines?.[own.line - 1]?.trim();
    const same = own === null || there === sourceOf(own) || (called && there?.includes('train(') === true);
    const known = model?.size === size || (own !== null && named.includes(folder));
    if (lines !== null && ((same && known) || source !== '')) {
      // The top folder has no name, so that its script stands for it.
      return { source: folder || job.main, path, line: frame.line };
    }
  }
  return null;
}

/** The folders in these folders. */
async function beside(folders: readonly string[], contents: Contents.IManager): Promise<string[]> {
  const listed = await Promise.all([...new Set(folders)].map(folder => contents.get(folder).catch(() => null)));
  const inside = listed.flatMap(model => (model?.content ?? []) as Contents.IModel[]).filter(({ type }) => type === 'directory');
  return inside.sort((a, b) => b.last_modified.localeCompare(a.last_modified)).slice(0, MOST).map(({ path }) => path);
}

/** The bytes of a file in the package of a job; -1 where that cannot be known. */
async function sizeOf(name: string, job: IJobView, api: Api): Promise<number> {
  const body = { source: { job: job.id }, main: null, tag: null, spec: {} };
  const preview = await api.request<IPreview>('previews', {}, 'POST', body).catch(() => null);
  return preview?.files.find(file => file.name === name)?.size ?? -1;
}

/** Open a file in an editor with the cursor at this line. */
export async function openAt(app: JupyterFrontEnd, place: Place): Promise<void> {
  const opened: unknown = await app.commands.execute('docmanager:open', { path: place.path });
  const widget = opened as {
    context?: { ready: Promise<void> };
    content?: { editor?: { setCursorPosition(to: object): void; revealPosition(to: object): void; focus(): void } };
  } | undefined;
  // Notebook 7 opens a tab of the browser, and returns nothing.
  await widget?.context?.ready;
  const editor = place.line > 0 ? widget?.content?.editor : undefined;
  const to = { line: place.line - 1, column: 0 };
  editor?.setCursorPosition(to);
  editor?.revealPosition(to);
  editor?.focus();
}
