/** Hyper-parameters from one line of text: `epochs=5, optimizer={"name": "SGD", "lr": 0.1}`. Pure. */

import { WrongAnswer } from '../page/form';

const FIELD = 'hyperparameters';

/** By name; each value is JSON, or a bare word. Throws WrongAnswer. */
export function hyperparametersOf(text: string): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const part of parts(text)) {
    const at = part.indexOf('=');
    const name = part.slice(0, at).trim();
    if (at < 1 || name === '') {
      throw new WrongAnswer(FIELD, `“${part.trim()}” is not of the form name=value.`);
    }
    const value = part.slice(at + 1).trim();
    try {
      found[name] = JSON.parse(value);
    } catch {
      if (/[{}[\]"]/.test(value)) {
        throw new WrongAnswer(FIELD, `The value of ${name} is no JSON: ${value}`);
      }
      found[name] = value;
    }
  }
  return found;
}

/** Split at commas that are not inside brackets. */
function parts(text: string): string[] {
  const found: string[] = [];
  let depth = 0;
  let part = '';
  for (const letter of text) {
    depth += '{['.includes(letter) ? 1 : '}]'.includes(letter) ? -1 : 0;
    if (letter === ',' && depth === 0) {
      found.push(part);
      part = '';
    } else {
      part += letter;
    }
  }
  return [...found, part].filter(each => each.trim() !== '');
}
