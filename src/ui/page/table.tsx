// How is a table drawn that is read by screen readers, and that fits a phone?
import { type ComponentChildren, Fragment, type JSX } from 'preact';

/** One column; the first one of a table names its row. */
export interface Column<T> {
  readonly title: string;
  readonly cell: (row: T) => ComponentChildren;
  readonly isNumber?: boolean;
}

/** Where it does not fit, each row becomes a block, which would take the roles from the elements if they were not stated. */
export function Table<T>(props: {
  readonly caption: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly T[];
  readonly keyOf: (row: T) => string;
  readonly classOf?: (row: T) => string;
  /** What is as wide as the table, below a row; undefined for nothing. */
  readonly below?: (row: T) => ComponentChildren;
}): JSX.Element {
  const { caption, columns, rows, keyOf, classOf, below } = props;
  const titles = columns.map(({ title }) => title);
  return (
    <Frame caption={caption} titles={titles}>
      {rows.map(row => (
        <Row key={keyOf(row)} look={classOf?.(row)} width={columns.length} below={below?.(row)}>
          {columns.map(({ title, cell, isNumber }, i) => (
            <Cell key={title} title={title} isFirst={i === 0} isNumber={isNumber === true}>
              {cell(row)}
            </Cell>
          ))}
        </Row>
      ))}
    </Frame>
  );
}

/** A table without its rows. */
export function Frame(props: {
  readonly caption: string;
  readonly titles: readonly string[];
  readonly onKeyDown?: (event: KeyboardEvent) => void;
  readonly children: ComponentChildren;
}): JSX.Element {
  const { caption, titles, onKeyDown, children } = props;
  return (
    <div class="frame">
      <table class="table" role="table" onKeyDown={onKeyDown}>
        <caption class="unseen">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {titles.map(title => (
              <th role="columnheader" scope="col" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">{children}</tbody>
      </table>
    </div>
  );
}

/** The cells of one row, and what stands below them: a long message would take the width from the other columns. */
export function Row(props: {
  readonly look?: string | undefined;
  /** Its columns. */
  readonly width: number;
  readonly below: ComponentChildren;
  readonly children: ComponentChildren;
}): JSX.Element {
  const { look = '', width, below, children } = props;
  const hasBelow = below !== undefined && below !== false;
  return (
    <Fragment>
      <tr role="row" class={hasBelow ? `${look} above` : look}>
        {children}
      </tr>
      {hasBelow && (
        <tr role="row" class={`${look} below`}>
          <td role="cell" colSpan={width}>
            {below}
          </td>
        </tr>
      )}
    </Fragment>
  );
}

/** One cell; in a block its title stands before it. */
export function Cell(props: {
  readonly title: string;
  readonly isFirst?: boolean;
  readonly isNumber?: boolean;
  readonly children?: ComponentChildren;
}): JSX.Element {
  const { title, isFirst, isNumber, children } = props;
  const content = <div class="content">{children}</div>;
  if (isFirst)
    return (
      <th role="rowheader" scope="row">
        {content}
      </th>
    );
  return (
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
