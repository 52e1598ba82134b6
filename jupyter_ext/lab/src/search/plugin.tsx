/** `edt:open-search`: the tab of a search; without an id it asks which. */

import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, InputDialog } from '@jupyterlab/apputils';
import type { ReadonlyJSONObject } from '@lumino/coreutils';

import { CATEGORY, CommandIDs } from '../commands';
import { searchIcon } from '../page/icons';
import { Opener } from '../page/opener';
import { IEdt } from '../tokens';
import type { ISearchView } from '../views';

import { SearchPage } from './search_page';
import { SEARCH_LOOKS } from './words';

interface Args extends ReadonlyJSONObject {
  id: string;
  /** The view it begins with. */
  tab?: string;
  name?: string;
}

/** Tabs of searches. */
export const search: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-edt:search',
  description: 'The tab of a search for hyper-parameters.',
  autoStart: true,
  requires: [IEdt],
  optional: [ILayoutRestorer, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    edt: IEdt,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null
  ): void => {
    const command = CommandIDs.openSearch;
    const opener = new Opener<Args>(
      app,
      edt,
      {
        name: 'search',
        command,
        icon: searchIcon,
        caption: 'A search: its history, comparisons and trials.',
        key: args => args.id,
        label: args => args.name ?? args.id,
        content: (args, page, keep) => {
          const named = (name: string): void => {
            if (page.title.label !== name) {
              page.title.label = name;
              keep({ name });
            }
          };
          return <SearchPage id={args.id} tab={args.tab ?? ''} onTab={tab => keep({ tab })} onNamed={named} />;
        }
      },
      restorer
    );
    app.commands.addCommand(command, {
      label: 'Open a Search …',
      caption: 'Open the tab of a search for hyper-parameters',
      icon: searchIcon,
      execute: async args => {
        const id = typeof args['id'] === 'string' ? args['id'] : await ask(edt);
        return id === null ? undefined : opener.open({ ...args, id } as Args);
      }
    });
    palette?.addItem({ command, category: CATEGORY });
  }
};

/** The id of one of my searches that a person picks, null when they pick none. */
async function ask(edt: IEdt): Promise<string | null> {
  const { searches } = await edt.api.request<{ searches: ISearchView[] }>('searches', { limit: 100 });
  const items = searches.map(view => `${view.spec.job.name} · ${SEARCH_LOOKS[view.state][1]} · ${view.id}`);
  const { button, value } = await InputDialog.getItem({
    title: items.length > 0 ? 'Open a search' : 'There is no search yet',
    label: items.length > 0 ? 'Which search?' : 'Start one from a notebook: client.search(…), or at a shell: edt search start.',
    items
  });
  return button.accept && value !== null ? (searches[items.indexOf(value)]?.id ?? null) : null;
}
