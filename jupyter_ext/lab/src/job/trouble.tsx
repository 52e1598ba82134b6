/** Why a job failed: the sentence, the line in the user's own code, which a click opens, and the rest of the log's end folded. */

import type { ReactElement } from 'react';

import { CommandIDs } from '../commands';
import { useEdt } from '../page/surroundings';
import type { IJobView } from '../views';
import { count } from '../words';

import { partsOf } from './traceback';

/** Shown in the head of a failed job. */
export function Trouble(props: { job: IJobView }): ReactElement {
  const { id, message } = props.job;
  const { commands } = useEdt();
  const { says, log, own, error, frames } = partsOf(message);
  // Python indents a frame by two blanks, and its source by four; its first line is said in words here.
  const source = own?.text.slice(1).map(line => line.replace(/^ {4}/, '  ')) ?? [];
  const place = own === null ? '' : `${own.file}, line ${own.line}`;
  return (
    <section className="jp-edt-message jp-mod-wrong" aria-label="Why it failed">
      <p>
        <span aria-hidden="true">✘︎ </span>
        {says}
      </p>
      {own !== null && (
        <pre tabIndex={0} aria-label="The line in your code">
          {commands.hasCommand(CommandIDs.mend) ? (
            <button type="button" className="jp-edt-link" onClick={() => void commands.execute(CommandIDs.mend, { id, look: true })}>
              {place}
            </button>
          ) : (
            place
          )}
          {['', ...source, ...(error === '' || says.includes(error) ? [] : [error])].join('\n')}
        </pre>
      )}
      {log !== '' && (
        <details open={frames === 0}>
          <summary>{frames > 1 ? `All ${count(frames, 'frame')}` : 'The end of the log'}</summary>
          <pre tabIndex={0} aria-label="The end of the log">
            {log}
          </pre>
        </details>
      )}
    </section>
  );
}
