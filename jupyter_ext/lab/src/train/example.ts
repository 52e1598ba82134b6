/** The bundled example: its script is written into the server's files, where one can read and change it, and submitted. */

import { URLExt } from '@jupyterlab/coreutils';
import type { Contents } from '@jupyterlab/services';

import { refusal } from '../api';
import type { IEdt } from '../tokens';
import type { IJobView } from '../views';

export const FOLDER = 'elastic-example';
const SCRIPT = 'train.py';

/** Submit the example, and return its job. A script that is there already is run as it is. */
export async function submitExample(edt: IEdt, contents: Contents.IManager): Promise<IJobView> {
  const path = `${FOLDER}/${SCRIPT}`;
  const there = await contents.get(path, { content: false }).catch(() => null);
  if (there === null) {
    const { transport } = edt.api;
    const answer = await transport.send(URLExt.join(transport.baseUrl, 'lab/extensions/jupyter-edt/example', SCRIPT), {});
    if (!answer.ok) {
      throw await refusal(answer);
    }
    const content = await answer.text();
    await contents.save(FOLDER, { type: 'directory' });
    await contents.save(path, { type: 'file', format: 'text', content });
  }
  const spec = { name: FOLDER, max_workers: 4 };
  return edt.api.request<IJobView>('submissions', {}, 'POST', { source: FOLDER, main: SCRIPT, tag: null, spec });
}
