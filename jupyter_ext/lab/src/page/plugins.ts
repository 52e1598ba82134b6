/** The plugins of the pages in the main area. */

import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { catalogue } from '../catalogue/plugin';
import { cluster } from '../cluster/plugin';
import { compare } from '../compare/plugin';
import { experiments } from '../experiments/plugin';
import { hosts } from '../hosts/plugin';
import { job } from '../job/plugin';
import { search } from '../search/plugin';
import { train } from '../train/plugin';

export const pages: JupyterFrontEndPlugin<void>[] = [job, search, cluster, compare, experiments, catalogue, train, hosts];
