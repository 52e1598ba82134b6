/** A page older than all that this was tried with says so, once it is there: what is missing then is no riddle. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';

/** The oldest of each program that `make labs` opens. */
const OLDEST: Record<string, readonly [number, number]> = { JupyterLab: [4, 2], 'Jupyter Notebook': [7, 2] };

/** What to say about a program of this name and version; undefined when it is new enough, or another one. Pure. */
export function tooOldWords(name: string, version: string): string | undefined {
  const oldest = OLDEST[name];
  const [major, minor] = version.split('.').map(part => Number.parseInt(part, 10));
  if (!oldest || major === undefined || minor === undefined || Number.isNaN(major) || Number.isNaN(minor)) {
    return undefined;
  }
  if (major > oldest[0] || (major === oldest[0] && minor >= oldest[1])) {
    return undefined;
  }
  const wanted = oldest.join('.');
  const requirement = `${name === 'JupyterLab' ? 'jupyterlab' : 'notebook'}>=${wanted}`;
  // Jupyter shows 140 characters of it.
  return `jupyter-edt needs ${name} ${wanted}; parts of it do not work in ${version}: pip install -U '${requirement}'`;
}

/** Says it, until somebody has seen it. */
export function warnWhereTooOld(app: JupyterFrontEnd): void {
  const words = tooOldWords(app.name, app.version);
  if (words !== undefined) {
    void app.restored.then(() => Notification.warning(words, { autoClose: false }));
  }
}
