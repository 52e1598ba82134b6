/** The list of plugins; each lies in the folder or file of its one thing. */
import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { edt } from './edt';

const plugins: JupyterFrontEndPlugin<any>[] = [edt];

export default plugins;
