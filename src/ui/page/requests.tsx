// Which requests for an attachment have a trace?
import type { JSX } from 'preact';
import { renderTime } from '../../lab/words.ts';
import type { RequestSummary } from '../shown.ts';
import { Outcome } from './badge.tsx';
import { type AttachmentKey, hrefOf } from './route.ts';
import { Table } from './table.tsx';

/** The newest first; the chosen one is drawn below. */
export function Requests(props: {
  readonly id: AttachmentKey;
  readonly requests: readonly RequestSummary[];
  readonly chosen: string | undefined;
}): JSX.Element {
  const { id, requests, chosen } = props;
  return (
    <Table<RequestSummary>
      caption="Requests with a trace, the newest first"
      rows={requests}
      keyOf={one => one.id}
      classOf={one => (one.id === chosen ? 'chosen' : '')}
      columns={[
        {
          title: 'Request',
          cell: one => (
            <a href={hrefOf(id, one.id)} aria-current={one.id === chosen ? 'true' : undefined}>
              {one.verb} <span class="quiet">{one.id}</span>
            </a>
          ),
        },
        {
          title: 'Time',
          cell: one =>
            new Date(one.startedAt)
              .toISOString()
              .replace('T', ' ')
              .replace(/\.\d+Z/, ' UTC'),
        },
        { title: 'Took', cell: one => renderTime(one.durationMs), isNumber: true },
        { title: 'Outcome', cell: one => <Outcome code={one.code} /> },
      ]}
    />
  );
}
