/** A request to a deployment, with an example or written by hand, its answer, and the same request for a shell. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { Copied } from '../page/copied';
import { usePolled } from '../page/polled';
import { Failure } from '../page/standing';
import { useEdt } from '../page/surroundings';
import type { IDeploymentView } from '../catalogue_schemas';

/** It goes through this server and its login, so no key is needed. */
export function TryIt({ deployment }: { deployment: IDeploymentView }): ReactElement {
  const { api } = useEdt();
  const [name, number] = deployment.version.split('/') as [string, string];
  const known = usePolled(
    deployment.version,
    () => api.request<{ inputs: unknown }>(`versions/${enc(name)}/${enc(number)}/example`),
    null
  );
  const example = known.value?.inputs ?? null;
  const [written, setInputs] = useState<string | null>(null);
  const inputs = written ?? (example === null ? '[[0, 0, 0, 0]]' : JSON.stringify(example));
  const [answer, setAnswer] = useState('');
  const [failed, setFailed] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const ask = async (): Promise<void> => {
    setFailed(null);
    setAnswer('');
    setBusy(true);
    try {
      const said: unknown = JSON.parse(inputs);
      const path = `deployments/${enc(deployment.name)}/predict`;
      const { outputs } = await api.request<{ outputs: unknown }>(path, {}, 'POST', { inputs: said });
      setAnswer(JSON.stringify(outputs));
    } catch (error) {
      setFailed(error instanceof SyntaxError ? new Error(`The inputs are no JSON: ${error.message}.`) : error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <h4>Try it</h4>
      <label className="jp-edt-field jp-mod-wide">
        Inputs, a row for each answer
        <textarea rows={3} spellCheck={false} value={inputs} onChange={event => setInputs(event.target.value)} />
      </label>
      <button type="button" className="jp-edt-button jp-mod-accept" onClick={() => void ask()} disabled={busy}>
        {busy ? 'Asking …' : 'Ask'}
      </button>
      {failed !== null && <Failure error={failed} />}
      {answer !== '' && (
        <pre className="jp-edt-answer" role="status" aria-label="The answer">
          {answer}
        </pre>
      )}
      {deployment.url !== '' && (
        <details>
          <summary>At a shell</summary>
          <Copied text={curlOf(deployment, inputs)} />
          {!deployment.public && <p className="jp-edt-hint">With a key of this deployment as KEY.</p>}
        </details>
      )}
    </>
  );
}

/** The line that asks for the same; the key is in a variable of the shell. */
export function curlOf(deployment: IDeploymentView, inputs: string): string {
  const key = deployment.public ? '' : ' -H "Authorization: Bearer $KEY"';
  const body = `{"inputs": ${inputs}}`.replaceAll("'", "'\\''");
  return `curl ${deployment.url}${key} -H 'Content-Type: application/json' -d '${body}'`;
}
