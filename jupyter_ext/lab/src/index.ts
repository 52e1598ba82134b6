/** The list of plugins; each lies in the folder or file of its one thing. */
import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { actions } from './actions';
import { card } from './card';
import { revive } from './card/revive';
import { edt } from './edt';
import { monitor } from './monitor/plugin';
import { pages } from './page/plugins';
import { panel } from './panel';
import { status } from './status';
import { toasts } from './toasts';

const plugins: JupyterFrontEndPlugin<any>[] = [edt, card, revive, panel, status, toasts, actions, monitor, ...pages];

export default plugins;
