/** A table of things, one a row: each column says what it is called and what it shows, and the last has what can be done. */

import type { ReactElement, ReactNode } from 'react';

/** What is told of every `Row`; the first column is what the row is called. */
export interface Column<Row> {
  readonly head: string;
  readonly cell: (row: Row) => ReactNode;
  /** Figures, which stand below each other. */
  readonly number?: boolean;
  /** Shown when it is pointed at. */
  readonly title?: (row: Row) => string;
  /** Pixels before it. */
  readonly inset?: (row: Row) => number;
}

/** A button at the end of a row: `label` is written on it, `says` is what it would do with which row. */
export interface RowAction {
  readonly label: string;
  readonly says: string;
  readonly run: () => void;
  readonly disabled?: boolean;
  readonly title?: string;
  /** It shows this row now, for one that shows one of all rows. */
  readonly pressed?: boolean;
}

/** `label` names the table where the heading above does not. `narrow`: only as wide as it needs to be. */
export function Table<Row>(props: {
  rows: readonly Row[];
  keyOf: (row: Row) => string | number;
  columns: readonly Column<Row>[];
  actions?: (row: Row) => readonly RowAction[];
  label?: string;
  narrow?: boolean;
}): ReactElement {
  const { rows, columns, actions } = props;
  return (
    <div className="jp-edt-scroll">
      <table className={`jp-edt-table${props.narrow === true ? ' jp-mod-narrow' : ''}`} aria-label={props.label}>
        <thead>
          <tr>
            {columns.map(column => (
              <th scope="col" key={column.head} className={numeric(column)}>
                {column.head}
              </th>
            ))}
            {actions !== undefined && (
              <th scope="col">
                <span className="jp-edt-visually-hidden">Actions</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {rows.map(row => (
            <tr key={props.keyOf(row)}>
              {columns.map((column, at) => (
                <Cell key={column.head} of={column} row={row} first={at === 0} />
              ))}
              {actions !== undefined && (
                <td>
                  <Actions of={actions(row)} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Cell<Row>(props: { of: Column<Row>; row: Row; first: boolean }): ReactElement {
  const { of, row, first } = props;
  const attributes = { className: numeric(of), title: of.title?.(row) };
  const inset = of.inset?.(row);
  const style = inset === undefined ? undefined : { paddingInlineStart: `${inset}px` };
  return first ? (
    <th scope="row" {...attributes} style={style}>
      {of.cell(row)}
    </th>
  ) : (
    <td {...attributes} style={style}>
      {of.cell(row)}
    </td>
  );
}

function Actions(props: { of: readonly RowAction[] }): ReactElement {
  return (
    <div className="jp-edt-row-actions">
      {props.of.map(({ label, says, run, pressed, ...rest }) => (
        <button
          key={label}
          type="button"
          className="jp-edt-button"
          aria-label={says}
          aria-pressed={pressed}
          onClick={run}
          {...rest}
        >
          {label}
        </button>
      ))}
    </div>
  );
}

function numeric<Row>(column: Column<Row>): string | undefined {
  return column.number === true ? 'jp-mod-number' : undefined;
}
