/** Parts of a job's result: downloaded by the browser at any size, or saved beside the notebook by its kernel. */

import type { Outputs } from '../actions/offered';
import type { Api, Part } from '../api';
import { ELASTIC, type IJobView } from '../views';

/** What there may be to download, with its name for people. */
const PARTS: readonly (readonly [Part, string])[] = [
  ['model', 'Model'],
  ['checkpoint', 'Checkpoints'],
  ['log', 'Log'],
  ['all', 'Everything']
];

/** The parts that this job has. `outputs` is null until they are known. A script may write what the server does not list. */
export function partsOf(job: IJobView, outputs: Outputs | null): readonly (readonly [Part, string])[] {
  const none = outputs !== null && !outputs.weights && job.framework === ELASTIC;
  return PARTS.filter(([part]) => !(none && (part === 'model' || (part === 'checkpoint' && !outputs.exact))));
}

/**
 * Start it. Returns a sentence with the place where the kernel has saved it, "" for a download of the browser.
 * The browser's download asks for the job first: a browser does not show why a download fails.
 */
export async function download(api: Api, job: IJobView, part: Part): Promise<string> {
  if (api.transport.save !== undefined) {
    return api.transport.save(job.id, part);
  }
  await api.job(job.id);
  const link = document.createElement('a');
  link.href = api.resultUrl(job.id, part);
  link.download = part === 'all' ? `${job.name}-${job.id}.zip` : `${job.name}-${part}-${job.id}.zip`;
  document.body.append(link);
  link.click();
  link.remove();
  return '';
}
