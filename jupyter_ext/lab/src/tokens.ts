/** What the plugins of this extension share: one `Api` and one `Jobs` for all that is on the screen. */
import { Token } from '@lumino/coreutils';

import type { Api } from './api';
import type { Jobs } from './jobs';

export interface IEdt {
  readonly api: Api;
  readonly jobs: Jobs;
}

export const IEdt = new Token<IEdt>('jupyter-edt:IEdt', 'The server of elastic training and what is known of its jobs.');
