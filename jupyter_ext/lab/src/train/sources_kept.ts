/**
 * Where the code of jobs lay that were submitted from this form, so that a clone can be made of it as it is now. Kept by the
 * browser, for this server; one that keeps nothing costs the clone that path and nothing else.
 */

const MOST = 200;

/** What of a draft says where the code is. */
export interface Source {
  source: string;
  main: string;
  tag: string;
}

function key(baseUrl: string): string {
  return `jupyter-edt:sources:${baseUrl}`;
}

function read(baseUrl: string): [string, Source][] {
  try {
    const kept: unknown = JSON.parse(window.localStorage.getItem(key(baseUrl)) ?? '[]');
    return Array.isArray(kept) ? (kept as [string, Source][]) : [];
  } catch {
    return [];
  }
}

/** Remember it for this job; of many jobs the newest. */
export function keepSource(baseUrl: string, job: string, draft: Source): void {
  const { source, main, tag } = draft;
  const entries = read(baseUrl).filter(([id]) => id !== job);
  try {
    window.localStorage.setItem(key(baseUrl), JSON.stringify([...entries, [job, { source, main, tag }]].slice(-MOST)));
  } catch {
    // Full, or forbidden: a clone will ask for the path.
  }
}

/** Where its code lay, null when it was submitted otherwise. */
export function sourceOf(baseUrl: string, job: string): Source | null {
  return read(baseUrl).find(([id]) => id === job)?.[1] ?? null;
}
