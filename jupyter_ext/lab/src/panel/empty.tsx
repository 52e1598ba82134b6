/** What is there instead of jobs: how to submit the first one, or how to see those that a filter hides. */
import { useState } from 'react';

import { copyText } from '../clipboard';
import { Button } from '../state';

// Three statements, in lines that are not broken in a narrow panel.
const EXAMPLE = `from edt_sdk import Client

job = Client().submit(
    "my_folder",
    main="train.py",
    max_workers=4,
)
job
`;

/** Nobody has a job yet, or I have none. */
export function NoJobs(props: {
  mine: boolean;
  onTry: (() => Promise<unknown>) | null;
  onTrain: (() => void) | null;
  onAll: () => void;
}): JSX.Element {
  const { onTry } = props;
  const [copied, setCopied] = useState(false);
  const [busy, setBusy] = useState(false);
  const copy = (): void => {
    copyText(EXAMPLE);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <div className="jp-edt-empty">
      <p>
        <b>{props.mine ? 'You have no jobs yet.' : 'Nobody has a job yet.'}</b>
      </p>
      {onTry ? (
        <>
          <p>Train a small network on digits, without any code of yours. Its script appears in the file browser.</p>
          <p className="jp-edt-buttons">
            <Button
              className="jp-mod-accept"
              disabled={busy}
              onClick={() => {
                setBusy(true);
                void onTry().finally(() => setBusy(false));
              }}
            >
              {busy ? 'Submitting …' : 'Try the example'}
            </Button>
          </p>
        </>
      ) : null}
      <p>Or put a training script into a folder beside your notebook and submit it from a cell:</p>
      <pre tabIndex={0}>{EXAMPLE}</pre>
      <p className="jp-edt-buttons">
        <Button onClick={copy}>{copied ? 'Copied' : 'Copy'}</Button>
        {props.onTrain ? <Button onClick={props.onTrain}>Train with a form …</Button> : null}
        {props.mine ? <Button onClick={props.onAll}>Show everybody’s</Button> : null}
      </p>
      <p>It starts as soon as one slot is free, grows as more come free, and appears here at once.</p>
    </div>
  );
}

/** There are jobs, but the filters hide them all. */
export function NoneChosen(props: { hidden: number; onClear: () => void }): JSX.Element {
  return (
    <div className="jp-edt-empty" role="status">
      <p>
        None of {props.hidden === 1 ? 'the 1 job' : `the ${props.hidden} jobs`} is like that.
      </p>
      <Button onClick={props.onClear}>Show all of them</Button>
    </div>
  );
}
