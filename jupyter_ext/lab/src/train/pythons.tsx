/** The Pythons that a job may run in, by the kernels that people know them by. */

import type { ReactElement } from 'react';

import { ofJob } from './draft';
import type { Draft } from './draft';

/** What `GET /interpreters` says: the server's own for jobs first. */
export interface IInterpreters {
  interpreters: IInterpreter[];
}

interface IInterpreter {
  python: string;
  version: string;
  /** It has jupyter-edt; without it no job can run in it. */
  ready: boolean;
  kernels: { name: string; display_name: string }[];
}

/** What a draft that names none runs in: what its notebook's kernel does; "" for the server's own, or a job's. */
export function usualPython(known: readonly IInterpreter[], draft: Draft): string {
  if (draft.kernel === '' || ofJob(draft)) {
    return '';
  }
  return known.find(each => each.ready && each.kernels.some(kernel => kernel.name === draft.kernel))?.python ?? '';
}

/** The choices: the usual one, then all others that can run a job, and the chosen one also where it is gone. */
export function pythons(known: readonly IInterpreter[], draft: Draft, usual: string): ReactElement {
  const own = known[0];
  const first = usual || own?.python;
  const others = known.filter(each => each.ready).map(each => each.python);
  if (draft.python !== '' && !others.includes(draft.python)) {
    others.push(draft.python);
  }
  return (
    <>
      <option value="">{ofJob(draft) ? 'as the job' : first === undefined ? 'Python' : called(known, first)}</option>
      {others
        .filter(path => ofJob(draft) || path !== first || path === draft.python)
        .map(path => (
          <option key={path} value={path} title={path}>
            {called(known, path)}
          </option>
        ))}
    </>
  );
}

/** What is said below the choice: whose Python is taken where none is chosen. */
export function whose(draft: Draft, usual: string): string {
  const needs = 'it needs the packages that your code imports';
  if (draft.python !== '' || ofJob(draft)) {
    return `What the job runs in; ${needs}.`;
  }
  return usual === '' ? `The server's own; ${needs}.` : `That of this notebook's kernel; ${needs}.`;
}

/** "Python 3 (3.11)"; the path of one that no kernel runs in. */
function called(known: readonly IInterpreter[], path: string): string {
  const found = known.find(each => each.python === path);
  const name = found?.kernels[0]?.display_name ?? path;
  return found === undefined ? name : `${name} (${found.version})`;
}
