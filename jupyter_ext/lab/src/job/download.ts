/** Parts of a job's result, by the browser's own download: as large as they are, nothing of them passes through this page. */

import type { Api, Part } from '../api';
import type { IJobView } from '../views';

/** What there is to download, with its name for people. */
export const PARTS: readonly (readonly [Part, string])[] = [
  ['model', 'Model'],
  ['checkpoint', 'Checkpoints'],
  ['log', 'Log'],
  ['all', 'Everything']
];

/** Begin it. The job is asked for first: a browser cannot say why a download does not come. */
export async function download(api: Api, job: IJobView, part: Part): Promise<void> {
  await api.job(job.id);
  const link = document.createElement('a');
  link.href = api.resultUrl(job.id, part);
  link.download = `${job.name}-${part}-${job.id}.zip`;
  document.body.append(link);
  link.click();
  link.remove();
}
