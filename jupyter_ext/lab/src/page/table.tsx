/** A table of things, one a row: each column says what it is called and what it shows, and the last has what can be done. */

import type { ReactElement, ReactNode } from 'react';

/** What is told of every `Row`; the first column is what the row is called. */
export interface Column<Row> {
  readonly head: string;
  readonly cell: (row: Row) => ReactNode;
  /** What it is sorted by, for `onSort`; without it is not. */
  readonly key?: string;
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

/** The order of the rows, and what a click on a head does. */
export interface Sorting {
  readonly by: string;
  readonly desc: boolean;
  readonly onSort: (key: string) => void;
}

/** `label` names the table where the heading above does not. `narrow`: only as wide as it needs to be. */
export function Table<Row>(props: {
  rows: readonly Row[];
  keyOf: (row: Row) => string | number;
  columns: readonly Column<Row>[];
  actions?: (row: Row) => readonly RowAction[];
  label?: string;
  narrow?: boolean;
  sorted?: Sorting;
}): ReactElement {
  const { rows, columns, actions, sorted } = props;
  return (
    <div className="jp-edt-scroll">
      <table className={`jp-edt-table${props.narrow === true ? ' jp-mod-narrow' : ''}`} aria-label={props.label}>
        <thead>
          <tr>
            {columns.map(column => (
              <th scope="col" key={column.key ?? column.head} className={numeric(column)} aria-sort={orderOf(column, sorted)}>
                <Head of={column} sorted={sorted} />
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
                <Cell key={column.key ?? column.head} of={column} row={row} first={at === 0} />
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

function Head<Row>(props: { of: Column<Row>; sorted: Sorting | undefined }): ReactElement {
  const { of, sorted } = props;
  const { key } = of;
  if (key === undefined || sorted === undefined) {
    return <>{of.head}</>;
  }
  const order = orderOf(of, sorted);
  return (
    <button type="button" className="jp-edt-sort" onClick={() => sorted.onSort(key)}>
      {of.head}
      <span aria-hidden="true">{order === undefined ? '' : order === 'ascending' ? ' ▴' : ' ▾'}</span>
    </button>
  );
}

function orderOf<Row>(column: Column<Row>, sorted: Sorting | undefined): 'ascending' | 'descending' | undefined {
  return column.key === undefined || sorted?.by !== column.key ? undefined : sorted.desc ? 'descending' : 'ascending';
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
