/** What can be done with a job, as buttons: each is a command, which asks before it does harm. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { LABELS, type Outputs, offered } from '../actions/offered';
import type { Part } from '../api';
import { CommandIDs } from '../commands';
import { useEdt } from '../page/surroundings';
import type { IJobView } from '../views';

import { download, partsOf } from './download';

/** Has its own place on the page, or is this page. */
const ELSEWHERE: readonly string[] = [CommandIDs.openJob, CommandIDs.update, CommandIDs.download];

/** The buttons that fit the job's state; `outputs` is null until they are known. `onFailed` gets what was thrown, null when there is nothing any more. */
export function Actions(props: { job: IJobView; outputs: Outputs | null; onFailed: (error: unknown) => void }): ReactElement {
  const { job } = props;
  const { api, commands } = useEdt();
  const [busy, setBusy] = useState('');
  const [saved, setSaved] = useState('');
  const run = async (name: string, act: () => Promise<unknown>): Promise<void> => {
    setBusy(name);
    setSaved('');
    props.onFailed(null);
    try {
      await act();
    } catch (error) {
      props.onFailed(error);
    } finally {
      setBusy('');
    }
  };
  const button = (label: string, command: string, args: Record<string, string | string[]>): ReactElement => (
    <button
      key={command}
      type="button"
      className="jp-edt-button"
      data-command={command}
      disabled={busy !== ''}
      onClick={() => void run(command, () => commands.execute(command, args))}
    >
      {label}
    </button>
  );
  const possible = offered(job, true, props.outputs).filter(command => !ELSEWHERE.includes(command) && commands.hasCommand(command));
  return (
    <div className="jp-edt-toolbar jp-edt-actions" role="toolbar" aria-label="Actions">
      {possible.map(command => button(LABELS[command] ?? command, command, { id: job.id }))}
      {button('Compare …', CommandIDs.compare, { ids: [job.id] })}
      <select
        value=""
        aria-label="Download"
        disabled={busy !== ''}
        onChange={event => {
          const part = event.target.value as Part;
          void run('download', async () => setSaved(await download(api, job, part)));
        }}
      >
        <option value="" disabled>
          Download …
        </option>
        {partsOf(job, props.outputs).map(([part, label]) => (
          <option key={part} value={part}>
            {label}
          </option>
        ))}
      </select>
      <span className="jp-edt-hint" role="status">
        {busy === 'download' && api.transport.save !== undefined ? 'Saving …' : saved}
      </span>
    </div>
  );
}
