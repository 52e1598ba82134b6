/**
 * The server's REST interface with types: one method a verb, an `ApiError` with a sentence for everything that fails.
 *
 * Every address lies below the base URL that JupyterLab itself talks to, so it is the same with a prefix, on a Hub and
 * where the Jupyter Server passes requests on to another one. Polling says `no_track_activity=1`: a forgotten tab does
 * not keep a server alive.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { PartialJSONValue } from '@lumino/coreutils';

import type { IModelVersion } from './catalogue_schemas';
import type {
  ICheckpoint,
  ICluster,
  ICurve,
  IInfo,
  IJobEvent,
  IJobPage,
  IJobPatch,
  IJobView,
  IWorker
} from './views';

/** Values of a query; undefined and "" are left out, true is written as 1. */
export type Query = Record<string, string | number | boolean | undefined>;

/** Something the server refused, or a server that did not answer (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string = '',
    readonly hint: string = '',
    readonly field: string = ''
  ) {
    super(message);
    this.name = 'ApiError';
  }

  /** What is wrong and what to do, as people read it. */
  get sentence(): string {
    return this.hint ? `${this.message} ${this.hint}` : this.message;
  }

  /** True when no server answered: what is on the screen may be old, and will be renewed by itself. */
  get unreachable(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

/** What went wrong, as a sentence; `error` may be anything that was thrown. */
export function sentenceOf(error: unknown): string {
  return error instanceof ApiError ? error.sentence : String(error instanceof Error ? error.message : error);
}

/** A picture the server has drawn: SVG, and the sentence that says what is to be seen. */
export interface IPicture {
  svg: string;
  says: string;
}

export type Part = 'all' | 'model' | 'checkpoint' | 'log';

/** The code of an ApiError for a token or cookie that is no longer accepted. */
export const LOGGED_OUT = 'logged_out';

const SAYS = /aria-label="([^"]*)"|<title>([^<]*)<\/title>/;

/** The way to a server: the browser's own requests in Jupyter's pages, a kernel's in the other notebooks. */
export interface Transport {
  /** Address of the Jupyter Server, with its prefix. */
  readonly baseUrl: string;
  /** Token of that server, "" where a cookie counts. */
  readonly token: string;
  /** Send one request; rejects when no server answers. */
  send(url: string, init: RequestInit): Promise<Response>;
  /** Save a part of a job's result where the browser cannot: beside the notebook. Returns a sentence with the place. */
  save?(job: string, part: Part): Promise<string>;
}

/** Typed requests to `/edt/api`. */
export class Api {
  private readonly known = new Map<string, { tag: string; answer: unknown }>();

  constructor(readonly transport: Transport) {}

  /** The absolute address of `path` (not escaped parts joined with slashes), such as `/jobs/ab12`. */
  url(path: string, query: Query = {}): string {
    const chosen = Object.entries(query)
      .filter(([, value]) => value !== undefined && value !== '' && value !== false)
      .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value === true ? 1 : value!)}`);
    const address = URLExt.join(this.transport.baseUrl, 'edt/api', path);
    return chosen.length ? `${address}?${chosen.join('&')}` : address;
  }

  /** JSON from the server; ApiError with its sentence otherwise. `body` is sent as JSON. */
  async request<T>(path: string, query: Query = {}, method = 'GET', body?: unknown): Promise<T> {
    const response = await this.fetch(path, query, method, body);
    if (response.status === 204) {
      return undefined as T;
    }
    return jsonOf<T>(response);
  }

  /** The response itself, when it is one of success (or 304); ApiError otherwise. */
  async fetch(
    path: string,
    query: Query = {},
    method = 'GET',
    body?: unknown,
    headers: Record<string, string> = {}
  ): Promise<Response> {
    const init: RequestInit = { method, headers };
    if (body !== undefined) {
      init.body = JSON.stringify(body as PartialJSONValue);
      init.headers = { ...headers, 'Content-Type': 'application/json' };
    }
    let response: Response;
    try {
      response = await this.transport.send(this.url(path, query), init);
    } catch {
      const again = method === 'GET' ? 'It is asked again by itself.' : 'When it answers again, look whether this was done.';
      throw new ApiError(0, 'The Jupyter server does not answer.', 'unreachable', again);
    }
    if (!response.ok && response.status !== 304) {
      throw await refusal(response);
    }
    return response;
  }

  // --- jobs ----------------------------------------------------------------------------------------------------------

  /** One page of jobs, newest first: mine, or with `all` everybody's. */
  jobs(query: { all?: boolean; state?: string; limit?: number; before?: string } = {}): Promise<IJobPage> {
    return this.request('jobs', { ...query, no_track_activity: 1 });
  }

  job(id: string): Promise<IJobView> {
    return this.request(`jobs/${enc(id)}`, { no_track_activity: 1 });
  }

  update(id: string, patch: IJobPatch): Promise<IJobView> {
    return this.request(`jobs/${enc(id)}`, {}, 'PATCH', patch);
  }

  stop(id: string): Promise<IJobView> {
    return this.request(`jobs/${enc(id)}/stop`, {}, 'POST', {});
  }

  suspend(id: string): Promise<IJobView> {
    return this.request(`jobs/${enc(id)}/suspend`, {}, 'POST', {});
  }

  resume(id: string, how: { checkpoint?: string; instance_group?: string } = {}): Promise<IJobView> {
    return this.request(`jobs/${enc(id)}/resume`, {}, 'POST', how);
  }

  delete(id: string): Promise<void> {
    return this.request(`jobs/${enc(id)}`, {}, 'DELETE');
  }

  events(id: string, after = 0): Promise<{ events: IJobEvent[]; next: number; done: boolean }> {
    return this.request(`jobs/${enc(id)}/events`, { after, no_track_activity: 1 });
  }

  workers(id: string): Promise<{ workers: IWorker[] }> {
    return this.request(`jobs/${enc(id)}/workers`, { no_track_activity: 1 });
  }

  checkpoints(id: string): Promise<{ checkpoints: ICheckpoint[] }> {
    return this.request(`jobs/${enc(id)}/checkpoints`, { no_track_activity: 1 });
  }

  /** Where a browser downloads a part of a job's result; the cookie of the session lets it. */
  async register(version: Record<string, string>): Promise<{ id: string }> {
    const { name, number } = await this.request<IModelVersion>('versions', {}, 'POST', version);
    return { id: `${name}/${number}` };
  }

  resultUrl(id: string, part: Part = 'all'): string {
    return this.url(`jobs/${enc(id)}/result`, { part });
  }

  // --- machine -------------------------------------------------------------------------------------------------------

  cluster(): Promise<ICluster> {
    return this.request('cluster', { no_track_activity: 1 });
  }

  info(): Promise<IInfo> {
    return this.request('', { no_track_activity: 1 });
  }

  // --- pictures and curves -------------------------------------------------------------------------------------------

  /** A picture: `jobs/<id>/pictures/loss` or `pictures/timeline`. */
  picture(path: string, query: Query = {}): Promise<IPicture> {
    return this.unlessKnown(path, query, async response => {
      if (response.redirected && !(response.headers.get('Content-Type') ?? '').includes('svg')) {
        throw loggedOut();
      }
      const svg = await response.text();
      const said = SAYS.exec(svg);
      return { svg, says: unescaped(said?.[1] ?? said?.[2] ?? '') };
    });
  }

  /** The losses of a job over samples, updates or time. */
  curve(id: string, x: string): Promise<ICurve> {
    return this.unlessKnown(`jobs/${enc(id)}/curve`, { x }, response => jsonOf<ICurve>(response));
  }

  /** What `read` makes of an answer; the same object again while the server says that it is unchanged. */
  private async unlessKnown<T>(
    path: string,
    query: Query,
    read: (response: Response) => Promise<T>
  ): Promise<T> {
    const key = this.url(path, query);
    const known = this.known.get(key);
    const headers: Record<string, string> = known ? { 'If-None-Match': known.tag } : {};
    const response = await this.fetch(path, { ...query, no_track_activity: 1 }, 'GET', undefined, headers);
    if (response.status === 304 && known) {
      return known.answer as T;
    }
    const answer = await read(response);
    const tag = response.headers.get('ETag');
    if (tag) {
      this.remember(key, tag, answer);
    }
    return answer;
  }

  private remember(key: string, tag: string, answer: unknown): void {
    this.known.delete(key);
    this.known.set(key, { tag, answer });
    const oldest = this.known.keys().next();
    if (this.known.size > 100 && !oldest.done) {
      this.known.delete(oldest.value);
    }
  }
}

async function jsonOf<T>(response: Response): Promise<T> {
  try {
    return (await response.json()) as T;
  } catch {
    // A proxy or a Hub sends a browser without a login to a page, and that page is what was read.
    throw response.redirected ? loggedOut() : notOurs();
  }
}

function loggedOut(): ApiError {
  const hint = 'Log in again in another tab; this page then goes on by itself, with all that is in it.';
  return new ApiError(403, 'The server does not know you any more: your login or its token has expired.', LOGGED_OUT, hint);
}

function notOurs(): ApiError {
  const hint = 'Load the page again; if that does not help, a proxy between you and the server stands in the way.';
  return new ApiError(502, 'What came back is no answer of jupyter-edt.', 'not_ours', hint);
}

/** A part of a path, escaped. */
export function enc(part: string): string {
  return encodeURIComponent(part);
}

function unescaped(text: string): string {
  return text
    .replace(/&lt;/g, '<')
    .replace(/&gt;/g, '>')
    .replace(/&quot;/g, '"')
    .replace(/&#x27;|&#39;/g, "'")
    .replace(/&amp;/g, '&');
}

/** The error of a response that is none of success. */
export async function refusal(response: Response): Promise<ApiError> {
  let told: Record<string, unknown> = {};
  try {
    told = (await response.json()) as Record<string, unknown>;
  } catch {
    // A proxy's page, or none: the status says what there is to say.
  }
  const text = (name: string): string => (typeof told[name] === 'string' ? (told[name] as string) : '');
  if (text('login') !== '' || (response.status === 403 && ['', 'Forbidden'].includes(text('message')))) {
    return loggedOut();
  }
  const message = text('message') || `The server answered ${response.status} ${response.statusText}.`.replace(' .', '.');
  let hint = text('hint');
  if (response.status === 404 && !text('code')) {
    hint = 'The server extension edt_jupyter does not run there; `jupyter server extension list` says why.';
  }
  return new ApiError(response.status, message, text('code'), hint, text('field'));
}
