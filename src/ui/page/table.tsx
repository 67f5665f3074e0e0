// How is a table drawn that is read by screen readers, and that fits a phone?
import type { ComponentChildren, JSX } from 'preact';

/** One column; the first one of a table names its row. */
export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  readonly isNumber?: boolean;
}

/** On a narrow page each row becomes a block, which would take the roles from the elements if they were not stated. */
export function Table<T>(props: {
  readonly caption: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  readonly classOf?: (row: T) => string;
}): JSX.Element {
  const { caption, columns, rows, keyOf, classOf } = props;
  return (
    <table class="table" role="table">
      <caption class="unseen">{caption}</caption>
      <TableHead titles={columns.map(({ title }) => title)} />
      <tbody role="rowgroup">
        {rows.map(row => (
          <tr role="row" key={keyOf(row)} class={classOf?.(row) ?? ''}>
            {columns.map(({ title, cell, isNumber }, i) => (
              <Cell key={title} title={title} isFirst={i === 0} isNumber={isNumber === true}>
                {cell(row)}
              </Cell>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The titles of the columns. */
export function TableHead({ titles }: { readonly titles: readonly string[] }): JSX.Element {
  return (
    <thead role="rowgroup">
      <tr role="row">
        {titles.map(title => (
          <th role="columnheader" scope="col" key={title}>
            {title}
          </th>
        ))}
      </tr>
    </thead>
  );
}

/** One cell; on a phone its title stands before it. */
export function Cell(props: {
  readonly title: string;
  readonly isFirst?: boolean;
  readonly isNumber?: boolean;
  readonly children?: ComponentChildren;
}): JSX.Element {
  const { title, isFirst, isNumber, children } = props;
  if (isFirst)
    return (
      <th role="rowheader" scope="row">
        {children}
      </th>
    );
  return (
    <td role="cell" class={isNumber ? 'number' : ''} data-title={title}>
      {children}
    </td>
  );
}
