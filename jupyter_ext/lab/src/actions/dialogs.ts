/** Questions that an action asks a person, and short messages: implemented by JupyterLab's dialogs and by a page's own. */

/** One input of a form. */
export interface IField {
  name: string;
  label: string;
  value: string;
  /** Values to choose from; without them a text is typed, or with `least` a number from there up. */
  choices?: string[];
  least?: number;
}

/** The way to ask a person. */
export interface Dialogs {
  /** Ask for agreement; `danger` marks what cannot be undone. */
  agreed(title: string, body: string, label: string, danger?: boolean): Promise<boolean>;
  /** Ask for the values of a form; null when the person cancels. */
  filled(title: string, fields: IField[], label: string): Promise<Record<string, string> | null>;
  /** Show a message for a few seconds, with a button for what is likely to come `next`. */
  notify(text: string, next?: { label: string; run: () => void }): void;
}

/** The inputs of `fields`, each in its label. */
export function form(fields: readonly IField[]): HTMLElement {
  const node = document.createElement('div');
  node.className = 'jp-edt-form';
  for (const field of fields) {
    const label = document.createElement('label');
    label.append(field.label);
    const input = document.createElement(field.choices ? 'select' : 'input');
    for (const choice of field.choices ?? []) {
      input.append(new Option(choice, choice));
    }
    if (input instanceof HTMLInputElement && field.least !== undefined) {
      input.type = 'number';
      input.min = String(field.least);
    }
    input.className = 'jp-mod-styled';
    input.name = field.name;
    input.value = field.value;
    label.append(input);
    node.append(label);
  }
  return node;
}

/** The values of the inputs in `node`, by name. */
export function valuesIn(node: HTMLElement): Record<string, string> {
  const inputs = node.querySelectorAll<HTMLInputElement | HTMLSelectElement>('input, select');
  return Object.fromEntries([...inputs].map(input => [input.name, input.value]));
}
