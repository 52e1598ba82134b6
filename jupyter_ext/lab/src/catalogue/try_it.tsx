/** A request to a deployment, written by hand, with its answer. */

import { useState } from 'react';
import type { ReactElement } from 'react';

import { enc } from '../api';
import { Failure } from '../page/standing';
import { useEdt } from '../page/surroundings';
import type { IDeploymentView } from '../catalogue_schemas';

/** It goes through this server and its login, so no key is needed. */
export function TryIt({ deployment }: { deployment: IDeploymentView }): ReactElement {
  const { api } = useEdt();
  const [inputs, setInputs] = useState('[[0, 0, 0, 0]]');
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
        <pre role="status" aria-label="The answer">
          {answer}
        </pre>
      )}
    </>
  );
}
