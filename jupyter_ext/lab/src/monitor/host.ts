/**
 * What JupyterLab and Notebook offer to the widgets of monitors on their page: to draw a monitor with the extension's own
 * connection, store of jobs and commands. The widget's module is another bundle, so the two meet on the page's global object.
 */
import type { Place } from './monitor';

/** Changes with the shape of the offer: a widget of another version talks through its kernel instead. */
export const VERSION = 1;

export interface MonitorHost {
  readonly version: number;
  /** Address of the server that the page comes from. */
  readonly baseUrl: string;
  /** Draw a monitor into an element; returns the function that removes it. */
  mount(element: HTMLElement, place: Place): () => void;
}

const page = globalThis as { jupyterEdt?: MonitorHost };

export function offerHost(host: MonitorHost): void {
  page.jupyterEdt = host;
}

/** The host of this page, undefined where there is none of this version. */
export function findHost(): MonitorHost | undefined {
  return page.jupyterEdt?.version === VERSION ? page.jupyterEdt : undefined;
}
