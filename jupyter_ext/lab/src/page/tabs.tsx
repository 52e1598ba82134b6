/** Tabs by the book: one is in the tab order, arrow keys move between them, each names its panel. */

import { useId, useRef } from 'react';
import type { KeyboardEvent, ReactElement, ReactNode } from 'react';

/** One tab. */
export interface Tab {
  readonly key: string;
  readonly label: string;
  readonly content: () => ReactNode;
}

/** A row of tabs with the chosen one's content below. */
export function Tabs(props: {
  tabs: readonly Tab[];
  chosen: string;
  label: string;
  onChoose: (key: string) => void;
}): ReactElement {
  const { tabs, chosen, onChoose } = props;
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const at = Math.max(
    0,
    tabs.findIndex(tab => tab.key === chosen)
  );
  const tab = tabs[at];
  const go = (event: KeyboardEvent): void => {
    const steps: Record<string, number> = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      Home: 0,
      End: tabs.length - 1
    };
    const step = steps[event.key];
    const next = step === undefined ? undefined : tabs[(step + tabs.length) % tabs.length];
    if (next !== undefined) {
      event.preventDefault();
      onChoose(next.key);
      list.current?.querySelector<HTMLElement>(`[data-key="${next.key}"]`)?.focus();
    }
  };
  return (
    <div className="jp-edt-tabs">
      <div className="jp-edt-tab-list" role="tablist" aria-label={props.label} ref={list} onKeyDown={go}>
        {tabs.map(each => (
          <button
            key={each.key}
            type="button"
            role="tab"
            data-key={each.key}
            id={`${id}-${each.key}`}
            aria-selected={each === tab}
            aria-controls={`${id}-panel`}
            tabIndex={each === tab ? 0 : -1}
            className="jp-edt-tab"
            onClick={() => onChoose(each.key)}
          >
            {each.label}
          </button>
        ))}
      </div>
      {tab !== undefined && (
        <div
          className="jp-edt-tab-panel"
          role="tabpanel"
          id={`${id}-panel`}
          aria-labelledby={`${id}-${tab.key}`}
          key={tab.key}
        >
          {tab.content()}
        </div>
      )}
    </div>
  );
}
