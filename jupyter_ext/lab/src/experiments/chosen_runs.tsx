/** What can be done with the chosen runs of a table. */

import type { ReactElement } from 'react';

import { labDialogs } from '../actions/lab_dialogs';
import { CommandIDs } from '../commands';
import { useAction } from '../page/action';
import { Failure } from '../page/standing';
import { useEdt } from '../page/surroundings';
import { Button } from '../state';
import { tagsOf } from '../train/draft';
import { count } from '../words';

import { type Row, isLiving } from './rows';

/** Jobs in one picture. */
const MOST = 5;

/** Buttons for these runs; `again` is called when something was done. */
export function ChosenRuns({ rows, again }: { rows: readonly Row[]; again: () => void }): ReactElement {
  const { api, commands, jobs } = useEdt();
  const { failed, act } = useAction(again);
  const ids = rows.map(row => String(row['job']));
  const living = rows.filter(isLiving).map(row => String(row['job']));
  const stop = async (): Promise<void> => {
    if (ids.length === 1) {
      await commands.execute(CommandIDs.stop, { id: ids[0]! });
    } else if (await labDialogs.agreed(`Stop ${count(living.length, 'run')}?`, 'Their logs and checkpoints stay.', 'Stop', true)) {
      await Promise.all(living.map(async id => jobs.put(await api.stop(id))));
    }
  };
  const tag = async (): Promise<void> => {
    const asked = [{ name: 'tags', label: 'Tags to add, separated by commas', value: '' }];
    const added = tagsOf((await labDialogs.filled(`Tag ${count(ids.length, 'run')}`, asked, 'Add'))?.['tags'] ?? '');
    const add = async (id: string): Promise<void> => {
      const { tags } = await api.job(id);
      jobs.put(await api.update(id, { tags: [...new Set([...tags, ...added])] }));
    };
    await Promise.all(added.length > 0 ? ids.map(add) : []);
  };
  const compared = ids.length >= 2 && ids.length <= MOST;
  const kept = ids.length === 1 && rows[0]!['state'] === 'FINISHED';
  const verbs: [string, string, boolean, () => Promise<unknown>][] = [
    ['Compare', `The losses of two to ${MOST} chosen runs in one picture`, compared, () => commands.execute(CommandIDs.compare, { ids })],
    ['Keep …', 'Keep the model of the chosen run as a version', kept, () => commands.execute(CommandIDs.register, { id: ids[0]! })],
    ['Tag …', 'Add tags to the chosen runs', ids.length > 0, tag],
    ['Stop …', 'Stop those of the chosen runs that have not ended', living.length > 0, stop]
  ];
  return (
    <>
      <span className="jp-edt-buttons" role="toolbar" aria-label="The chosen runs">
        {verbs.map(([label, title, enabled, run]) => (
          <Button key={label} title={title} disabled={!enabled} onClick={() => void act(run)}>
            {label}
          </Button>
        ))}
      </span>
      {ids.length > 0 && <span className="jp-edt-hint">{ids.length} chosen</span>}
      {failed !== null && <Failure error={failed} />}
    </>
  );
}
