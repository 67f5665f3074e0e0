// How is a table drawn that is read by screen readers, and that fits a phone?
import { Component, type ComponentChildren, Fragment, type JSX } from 'preact';

/** One column; the first one of a table names its row. */
export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  readonly isNumber?: boolean;
}

interface TableProps<T> {
  readonly caption: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  readonly classOf?: (row: T) => string;
  /** What is as wide as the table, below a row: a long message would take the width from the other columns. */
  readonly below?: (row: T) => ComponentChildren;
  /** A row that is the same is not drawn again. */
  readonly isSame?: (before: T, now: T) => boolean;
  readonly onKeyDown?: (event: KeyboardEvent) => void;
}

/** Where it does not fit, each row becomes a block, which would take the roles from the elements if they were not stated. */
export function Table<T>(props: TableProps<T>): JSX.Element {
  const { caption, columns, rows, keyOf, onKeyDown } = props;
  return (
    <div class="frame">
      <table class="table" role="table" onKeyDown={onKeyDown}>
        <caption class="unseen">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map(({ title }) => (
              <th role="columnheader" scope="col" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map(row => (
            <Row key={keyOf(row)} row={row} table={props} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps<T> {
  readonly row: T;
  readonly table: TableProps<T>;
}

class Row<T> extends Component<RowProps<T>> {
  override shouldComponentUpdate({ row, table }: RowProps<T>): boolean {
    return !table.isSame?.(this.props.row, row);
  }

  override render({ row, table: { columns, classOf, below } }: RowProps<T>): JSX.Element {
    const look = classOf?.(row) ?? '';
    const more = below?.(row);
    const hasMore = more !== undefined && more !== false;
    return (
      <Fragment>
        <tr role="row" class={hasMore ? `${look} above` : look}>
          {columns.map((column, i) => (
            <Cell key={column.title} column={column} row={row} isFirst={i === 0} />
          ))}
        </tr>
        {hasMore && (
          <tr role="row" class={`${look} below`}>
            <td role="cell" colSpan={columns.length}>
              {more}
            </td>
          </tr>
        )}
      </Fragment>
    );
  }
}

/** In a block, its title stands before it. */
function Cell<T>(props: {
  readonly column: Column<T>;
  readonly row: T;
  readonly isFirst: boolean;
}): JSX.Element {
  const { title, cell, isNumber } = props.column;
  const content = <div class="content">{cell(props.row)}</div>;
  return props.isFirst ? (
    <th role="rowheader" scope="row">
      {content}
    </th>
  ) : (
    <td role="cell" class={isNumber ? 'number' : ''} data-title={title}>
      {content}
    </td>
  );
}

/** An IPv6 address without `::` is wider than a column. */
const MOST_WHOLE = 24;

/** Words that stay in one line each; a long address begins a line, and breaks after a colon. */
export function Whole({ words }: { readonly words: readonly string[] }): JSX.Element {
  return (
    <>
      {words.map((word, i) => (
        <Fragment key={word}>
          {i > 0 && ' '}
          <span class={word.length <= MOST_WHOLE ? 'whole' : 'block'}>
            {word.length <= MOST_WHOLE ? word : <Name text={word} />}
          </span>
        </Fragment>
      ))}
    </>
  );
}

/** A name or an address that breaks after a slash or a colon before it breaks elsewhere. */
export function Name({ text }: { readonly text: string }): JSX.Element {
  const parts = text.split(/(?<=[/:])/);
  return (
    <>
      {parts.map((part, i) => (
        <Fragment key={i}>
          {i > 0 && <wbr />}
          {part}
        </Fragment>
      ))}
    </>
  );
}
