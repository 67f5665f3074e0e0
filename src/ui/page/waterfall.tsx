// When did each plugin of a request run?
import type { JSX } from 'preact';
import { count, renderTime } from '../../lab/words.ts';
import type { ShownRequest } from '../shown.ts';
import { Outcome } from './badge.tsx';
import { type Column, Table } from './table.tsx';
import { barOf, rowsOf, type WaterfallRow } from './waterfall-rows.ts';

/** A bar for each plugin, in the time of the request; the numbers beside it say the same. */
export function Waterfall({ record }: { readonly record: ShownRequest }): JSX.Element {
  const rows = rowsOf(record);
  const columns: readonly Column<WaterfallRow>[] = [
    { title: 'Plugin', cell: ({ name }) => name },
    { title: 'When', cell: row => <Bar row={row} totalMs={record.durationMs} /> },
    { title: 'Start', cell: ({ startMs }) => renderTime(startMs), isNumber: true },
    { title: 'Took', cell: ({ durationMs }) => renderTime(durationMs), isNumber: true },
    { title: 'Kernel', cell: row => <Kernel row={row} /> },
    { title: 'Outcome', cell: ({ code }) => code !== undefined && <Outcome code={code} /> },
  ];
  return (
    <section aria-labelledby="waterfall-title">
      <h4 id="waterfall-title">
        {record.verb} {record.id}: {renderTime(record.durationMs)}
        {record.warm ? ', by the daemon' : ', by a command'}
      </h4>
      {record.message !== undefined && (
        <p class="notice broken">{[record.message, record.details].filter(Boolean).join(': ')}</p>
      )}
      <Table caption="When each plugin ran" columns={columns} rows={rows} keyOf={({ key }) => key} />
    </section>
  );
}

function Bar({ row, totalMs }: { readonly row: WaterfallRow; readonly totalMs: number }): JSX.Element {
  const { x, width } = barOf(row, totalMs);
  return (
    <svg class="when" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="100" height="10" />
      <rect class={row.code ? 'bad' : 'took'} x={x} width={width} height="10" />
    </svg>
  );
}

function Kernel({ row: { transactions } }: { readonly row: WaterfallRow }): JSX.Element | null {
  if (transactions.length === 0) return null;
  return (
    <details>
      <summary>{count(transactions.length, 'transaction')}</summary>
      <ul class="changes">
        {transactions.map(({ family, what, startMs, durationMs, error }) => (
          <li key={`${startMs} ${what}`}>
            <code>{family}</code> {what}, {durationMs.toFixed(2)} ms{error !== undefined && `: ${error}`}
          </li>
        ))}
      </ul>
    </details>
  );
}
