/** Dialogs of a page that is not JupyterLab: the browser's own `<dialog>`, which keeps the focus and closes with Escape. */
import { type Dialogs, form, valuesIn } from '../actions/dialogs';

const NOTIFICATION_MS = 5000;

/** Dialogs that are shown inside of `element`, so that they have its styles. */
export function pageDialogs(element: HTMLElement): Dialogs {
  const ask = (title: string, body: HTMLElement, label: string, cancel: string, danger: boolean): Promise<boolean> => {
    const dialog = document.createElement('dialog');
    dialog.className = 'jp-edt-dialog';
    const heading = document.createElement('h3');
    heading.id = `jp-edt-dialog-${Math.random().toString(36).slice(2)}`;
    heading.textContent = title;
    dialog.setAttribute('aria-labelledby', heading.id);
    const buttons = document.createElement('form');
    buttons.method = 'dialog';
    buttons.className = 'jp-edt-toolbar';
    const button = (text: string, value: string, focus: boolean): void => {
      const made = document.createElement('button');
      made.className = `jp-edt-button${value === 'yes' && danger ? ' jp-mod-warn' : ''}`;
      made.textContent = text;
      made.value = value;
      made.autofocus = focus;
      buttons.append(made);
    };
    button(cancel, '', danger);
    button(label, 'yes', !danger);
    dialog.append(heading, body, buttons);
    element.append(dialog);
    dialog.showModal();
    return new Promise(done =>
      dialog.addEventListener('close', () => {
        dialog.remove();
        done(dialog.returnValue === 'yes');
      })
    );
  };
  return {
    agreed(title, body, label, danger = false) {
      const text = document.createElement('p');
      text.textContent = body;
      return ask(title, text, label, 'Leave it', danger);
    },

    async filled(title, fields, label) {
      const body = form(fields);
      return (await ask(title, body, label, 'Cancel', false)) ? valuesIn(body) : null;
    },

    notify(text) {
      const message = document.createElement('p');
      message.className = 'jp-edt-toast';
      message.setAttribute('role', 'status');
      message.textContent = text;
      element.append(message);
      setTimeout(() => message.remove(), NOTIFICATION_MS);
    }
  };
}
