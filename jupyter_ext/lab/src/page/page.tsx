/**
 * A view in the main area: a widget around React that knows whether anybody can see it, because what nobody sees is not
 * asked for.
 */

import { useEffect, useState } from 'react';
import type { ReactElement } from 'react';

import { ReactWidget } from '@jupyterlab/ui-components';
import type { LabIcon } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';

import { Boundary } from './boundary';
import { Shown } from './shown';

/** What a page is called, and what it shows. */
export interface PageOptions {
  /** DOM id, unique in the application. */
  id: string;
  label: string;
  caption: string;
  icon: LabIcon;
  /** CSS class beside `jp-edt-page`. */
  className: string;
  content: (page: Page) => ReactElement;
}

/** A page of the main area. */
export class Page extends ReactWidget {
  constructor(private readonly options: PageOptions) {
    super();
    this.id = options.id;
    this.addClass('jp-edt-page');
    this.addClass(options.className);
    this.title.label = options.label;
    this.title.caption = options.caption;
    this.title.icon = options.icon;
    this.title.closable = true;
    this.node.tabIndex = -1;
  }

  /** Emitted when it comes into view or leaves it. */
  readonly shown = new Signal<this, boolean>(this);

  protected override render(): ReactElement {
    return <Watched page={this}>{this.options.content(this)}</Watched>;
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.shown.emit(true);
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.shown.emit(false);
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    if (!this.node.contains(document.activeElement)) {
      this.node.focus({ preventScroll: true });
    }
  }

  /** A tab that was closed is not opened again. */
  protected override onCloseRequest(message: Message): void {
    super.onCloseRequest(message);
    this.dispose();
  }
}

function Watched(props: { page: Page; children: ReactElement }): ReactElement {
  const { page } = props;
  const [visible, setVisible] = useState(page.isVisible);
  const [awake, setAwake] = useState(!document.hidden);
  useEffect(() => {
    const onShown = (_: Page, now: boolean): void => setVisible(now);
    const onAwake = (): void => setAwake(!document.hidden);
    page.shown.connect(onShown);
    document.addEventListener('visibilitychange', onAwake);
    setVisible(page.isVisible);
    return () => {
      page.shown.disconnect(onShown);
      document.removeEventListener('visibilitychange', onAwake);
    };
  }, [page]);
  return (
    <Shown.Provider value={visible && awake}>
      <Boundary>{props.children}</Boundary>
    </Shown.Provider>
  );
}
