/** What a cell's output says of a job or a search, as `repr` left it: checked, since a notebook may say anything. */
import { type IJobView, type ISearchView, STATES } from '../views';

export const MIME = 'application/vnd.edt.job+json';
export const SEARCH_MIME = 'application/vnd.edt.search+json';

export interface IBundle<View = IJobView> {
  id: string;
  /** When the view was taken, seconds since the epoch. */
  taken: number;
  view: View | null;
  /** Base URL of the server it was submitted to, as the SDK knew it. */
  origin: string;
}

/** The bundle of a job, or the sentence that says why it is none. */
export function parseBundle(data: unknown): IBundle | string {
  return parsed(data, 'job', isView);
}

/** The bundle of a search, or the sentence that says why it is none. */
export function parseSearch(data: unknown): IBundle<ISearchView> | string {
  return parsed(data, 'search', isSearch);
}

function parsed<View>(
  data: unknown,
  what: string,
  isView: (data: unknown, id: string) => data is View
): IBundle<View> | string {
  const told = (typeof data === 'object' && data !== null ? data : {}) as Record<string, unknown>;
  if (told['version'] !== 1) {
    return `This card was made by another version of jupyter-edt. What follows is how the ${what} was then.`;
  }
  const id = told['id'];
  if (typeof id !== 'string' || id === '') {
    return `This card does not say which ${what} it is of.`;
  }
  const taken = told['taken'];
  return {
    id,
    taken: typeof taken === 'number' && Number.isFinite(taken) ? taken : 0,
    view: isView(told['view'], id) ? told['view'] : null,
    origin: typeof told['origin'] === 'string' ? told['origin'] : ''
  };
}

function isView(data: unknown, id: string): data is IJobView {
  const view = (typeof data === 'object' && data !== null ? data : {}) as Partial<IJobView>;
  return (
    view.id === id &&
    typeof view.name === 'string' &&
    STATES.includes(view.state as never) &&
    typeof view.created === 'number' &&
    typeof view.slots === 'number' &&
    typeof view.max_workers === 'number' &&
    typeof view.message === 'string'
  );
}

function isSearch(data: unknown, id: string): data is ISearchView {
  const view = (typeof data === 'object' && data !== null ? data : {}) as Partial<ISearchView>;
  return (
    view.id === id &&
    typeof view.spec?.job?.name === 'string' &&
    typeof view.state === 'string' &&
    typeof view.counts === 'object' &&
    Array.isArray(view.rungs) &&
    Array.isArray(view.budgets)
  );
}

const LOCAL = /^(localhost|127(\.\d+){3}|\[?::1\]?|0\.0\.0\.0)$/;

/**
 * True when `origin` cannot be the server that this page is from: a kernel may know a server by another name than the
 * browser does, so only another path, or two names of which neither is this machine's own, tell them apart.
 */
export function isElsewhere(origin: string, base: string): boolean {
  let from: URL;
  let here: URL;
  try {
    from = new URL(origin);
    here = new URL(base, document.baseURI);
  } catch {
    return false;
  }
  const paths = from.pathname.replace(/\/+$/, '') !== here.pathname.replace(/\/+$/, '');
  const local = LOCAL.test(from.hostname) || LOCAL.test(here.hostname);
  const ports = LOCAL.test(from.hostname) && LOCAL.test(here.hostname) && from.port !== here.port;
  return paths || ports || (!local && from.host !== here.host);
}
