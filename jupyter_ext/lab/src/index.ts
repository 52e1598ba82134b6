/** The list of plugins; each lies in the folder or file of its one thing. */
import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { card } from './card';
import { edt } from './edt';

const plugins: JupyterFrontEndPlugin<any>[] = [edt, card];

export default plugins;
