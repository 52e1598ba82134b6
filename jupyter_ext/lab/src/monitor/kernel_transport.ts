/**
 * Requests to the server through the kernel, as messages of the widget: for notebooks whose page is of another origin than
 * the server (VS Code, Colab). Kernel side: `edt_sdk/monitor/relay.py`.
 *
 * A kernel takes no message while a cell runs. Until then it repeats what was asked last by itself, so that an answer to
 * the same question may come before its request was read.
 */
import type { Part, Transport } from '../api';

/** The part of a widget's model that is used here. */
export interface Model {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: 'msg:custom', callback: (content: unknown) => void): void;
  off(event: 'msg:custom', callback: (content: unknown) => void): void;
}

interface Answer {
  kind: 'answer' | 'saved';
  id: number;
  path: string;
  status: number;
  body: string;
}

interface Waiting {
  readonly path: string;
  readonly take: (answer: Answer) => void;
  readonly fail: (error: Error) => void;
}

/** Statuses whose responses have no body. */
const EMPTY = [204, 304];

export class KernelTransport implements Transport {
  readonly token = '';
  private readonly waiting = new Map<number, Waiting>();
  private last = 0;

  constructor(
    private readonly model: Model,
    readonly baseUrl: string
  ) {
    model.on('msg:custom', this.receive);
  }

  dispose(): void {
    this.model.off('msg:custom', this.receive);
    this.waiting.forEach(each => each.fail(new Error('The monitor was closed.')));
    this.waiting.clear();
  }

  async send(url: string, init: RequestInit): Promise<Response> {
    const api = `${this.baseUrl.replace(/\/$/, '')}/edt/api`;
    const path = url.slice(api.length).replace(/^\//, '');
    const method = init.method ?? 'GET';
    const answer = await this.ask({ kind: 'ask', method, path, body: init.body ?? null }, method === 'GET' ? path : '');
    const body = EMPTY.includes(answer.status) ? null : answer.body;
    return new Response(body, { status: answer.status });
  }

  async save(job: string, part: Part): Promise<string> {
    const answer = await this.ask({ kind: 'save', job, part }, '');
    if (answer.status !== 200) {
      throw new Error(answer.body);
    }
    return answer.body;
  }

  private ask(message: object, path: string): Promise<Answer> {
    const id = ++this.last;
    return new Promise((take, fail) => {
      this.waiting.set(id, { path, take, fail });
      this.model.send({ ...message, id });
    });
  }

  private readonly receive = (content: unknown): void => {
    const answer = content as Answer;
    for (const [id, each] of this.waiting) {
      if (answer.id === id || (each.path !== '' && each.path === answer.path)) {
        this.waiting.delete(id);
        each.take(answer);
      }
    }
  };
}
