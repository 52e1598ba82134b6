/** Where the script of a failed job lies now: the file that has the line of its traceback, as the server's files have it. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { PathExt } from '@jupyterlab/coreutils';
import type { Contents } from '@jupyterlab/services';

import { type Frame, partsOf, sourceOf } from '../job/traceback';
import type { IJobView } from '../views';

/** A file to mend. */
export interface Place {
  /** The folder, script or notebook that the job was packed from, as the file browser names it. */
  readonly source: string;
  readonly path: string;
  /** Counted from 1; 0 where no line is known. */
  readonly line: number;
  /** True when a line of the code failed; false for a job that failed for another reason, such as a wrong argument. */
  readonly failed: boolean;
}

/**
 * Find the file to mend, null when it is not among the server's files.
 *
 * A job that was submitted from this browser has a known `source`. A kernel packs a folder without a word to the server, so
 * for its jobs the folders beside the open documents are tried, and taken where the line is the one that failed. A `train()`
 * call has no source in the message, so that a line with such a call is taken.
 */
export async function placeOf(
  job: IJobView,
  source: string,
  folders: readonly string[],
  contents: Contents.IManager
): Promise<Place | null> {
  const { own } = partsOf(job.message);
  const failed = own !== null;
  // A `train()` call is named without its folder.
  const called = own?.text.length === 0;
  const main = called && PathExt.basename(job.main) === own?.file;
  const frame: Pick<Frame, 'file' | 'line'> = own === null || main ? { file: job.main, line: own?.line ?? 0 } : own;
  if (/\.(py|ipynb)$/.test(source)) {
    const itself = source.endsWith('.py') && PathExt.basename(source) === PathExt.basename(frame.file);
    return { source, path: source, line: itself ? frame.line : 0, failed };
  }
  const sources = folders.flatMap(folder => [PathExt.join(folder, job.name), folder]);
  for (const folder of source === '' ? [...new Set(sources)] : [source]) {
    const path = PathExt.join(folder, frame.file);
    const model = await contents.get(path, { type: 'file', format: 'text', content: true }).catch(() => null);
    const lines = typeof model?.content === 'string' ? model.content.split('\n') : null;
    const there = own === null ? undefined : lines?.[own.line - 1]?.trim();
    const same = own !== null && (there === sourceOf(own) || (called && there?.includes('train(') === true));
    if (lines !== null && (same || source !== '')) {
      return { source: folder, path, line: frame.line, failed };
    }
  }
  return null;
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
