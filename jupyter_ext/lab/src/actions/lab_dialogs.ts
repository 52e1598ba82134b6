/** JupyterLab's own dialogs and notifications. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';

import { type Dialogs, form, valuesIn } from './dialogs';

const NOTIFICATION_MS = 3000;
const WITH_BUTTON_MS = 15_000; // long enough to read it and to reach the button

export const labDialogs: Dialogs = {
  async agreed(title, body, label, danger = false) {
    const button = danger ? Dialog.warnButton({ label }) : Dialog.okButton({ label });
    const answer = await showDialog({
      title,
      body,
      buttons: [Dialog.cancelButton({ label: 'Leave it' }), button],
      defaultButton: danger ? 0 : 1
    });
    return answer.button.accept;
  },

  async filled(title, fields, label) {
    const answer = await showDialog<Record<string, string>>({
      title,
      body: new Form(form(fields)),
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label })],
      focusNodeSelector: 'input'
    });
    return answer.button.accept ? answer.value : null;
  },

  notify(text, next) {
    const actions = next === undefined ? [] : [{ label: next.label, callback: next.run }];
    Notification.success(text, { autoClose: next === undefined ? NOTIFICATION_MS : WITH_BUTTON_MS, actions });
  }
};

class Form extends Widget implements Dialog.IBodyWidget<Record<string, string>> {
  constructor(node: HTMLElement) {
    super({ node });
  }

  getValue(): Record<string, string> {
    return valuesIn(this.node);
  }
}
