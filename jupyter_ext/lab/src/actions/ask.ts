/** Asks before it is done: what is meant, and what it costs. */
import { Dialog, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

/** True when somebody agrees. `danger` for what cannot be undone. */
export async function agreed(title: string, body: string, label: string, danger = false): Promise<boolean> {
  const button = danger ? Dialog.warnButton({ label }) : Dialog.okButton({ label });
  const answer = await showDialog({
    title,
    body,
    buttons: [Dialog.cancelButton({ label: 'Leave it' }), button],
    defaultButton: danger ? 0 : 1
  });
  return answer.button.accept;
}

export interface IField {
  name: string;
  label: string;
  value: string;
  /** Values to choose from; else a number is typed, from `least` up. */
  choices?: string[];
  least?: number;
}

/** What somebody puts into these fields, or null for nothing. */
export async function filled(title: string, fields: IField[], label: string): Promise<Record<string, string> | null> {
  const answer = await showDialog<Record<string, string>>({
    title,
    body: new Form(fields),
    buttons: [Dialog.cancelButton(), Dialog.okButton({ label })],
    focusNodeSelector: 'input'
  });
  return answer.button.accept ? answer.value : null;
}

class Form extends Widget implements Dialog.IBodyWidget<Record<string, string>> {
  constructor(fields: IField[]) {
    super();
    this.addClass('jp-edt-form');
    for (const field of fields) {
      const label = document.createElement('label');
      label.append(field.label);
      const input = document.createElement(field.choices ? 'select' : 'input');
      for (const choice of field.choices ?? []) {
        input.append(new Option(choice, choice));
      }
      if (input instanceof HTMLInputElement) {
        input.type = 'number';
        input.min = String(field.least ?? 0);
      }
      input.className = 'jp-mod-styled';
      input.name = field.name;
      input.value = field.value;
      label.append(input);
      this.node.append(label);
    }
  }

  getValue(): Record<string, string> {
    const inputs = this.node.querySelectorAll<HTMLInputElement | HTMLSelectElement>('input, select');
    return Object.fromEntries([...inputs].map(input => [input.name, input.value]));
  }
}
