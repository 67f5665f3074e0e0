// What happened on this node in the last days?
import type { JSX } from 'preact';
import { keyOf } from '../../cni/attachment.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { renderMoment, titleOf } from '../../node/words.ts';
import type { ShownEvent } from '../shown.ts';
import { Outcome } from './badge.tsx';
import { usePolled } from './polling.ts';
import { hrefOf, type ViewProps } from './route.ts';
import { matcherOf } from './search.ts';
import { type Column, Name, Table, Whole } from './table.tsx';

const EVERY_MS = 5_000;
/** More are found by the search. */
const MOST_ROWS = 500;

/** The newest first. */
export function Log({ node, query }: ViewProps): JSX.Element {
  const { value, problem } = usePolled<{ readonly items: readonly ShownEvent[] }>('log', EVERY_MS);
  const matches = matcherOf(query);
  const found = value?.items.filter(one => matches(Object.values(one).join(' '))).toReversed() ?? [];
  const rows = found.slice(0, MOST_ROWS);
  const known = new Map(node.attachments.map(one => [keyOf(one), one]));
  return (
    <section aria-labelledby="log-title">
      <h2 id="log-title" tabIndex={-1}>
        Log of the last seven days
      </h2>
      {problem !== undefined && <p class="notice broken">{problem}</p>}
      {value === undefined && problem === undefined && <p class="quiet">Reading …</p>}
      {value !== undefined && rows.length === 0 && <p class="quiet">Nothing is on record.</p>}
      {rows.length > 0 && (
        <Table
          caption="What changed, the newest first"
          columns={columnsFor(known)}
          rows={rows}
          keyOf={one => JSON.stringify(one)}
          classOf={({ code }) => (code === 0 ? '' : 'broken')}
          below={({ message }) => message !== undefined && <div class="why">{message}</div>}
        />
      )}
      {found.length > rows.length && (
        <p class="quiet">{found.length - rows.length} older entries are left out; search for them.</p>
      )}
    </section>
  );
}

function columnsFor(known: ReadonlyMap<string, NodeAttachment>): Column<ShownEvent>[] {
  return [
    {
      title: 'Time',
      cell: ({ time }) => (
        <time dateTime={time}>
          <Whole words={renderMoment(time).split(/ (?!UTC)/)} />
        </time>
      ),
    },
    { title: 'What', cell: ({ what }) => what },
    {
      title: 'Attachment',
      cell: ({ network = '', containerId = '', ifname = '', trace, ...names }) => {
        const one = known.get(keyOf({ network, containerId, ifname }));
        const name = titleOf(one ?? { containerId, ...names });
        const text = <Name text={`${name} ${ifname}`.trim()} />;
        return one === undefined ? text : <a href={hrefOf(one, trace)}>{text}</a>;
      },
    },
    { title: 'Network', cell: ({ network }) => network },
    { title: 'By', cell: ({ by }) => by },
    { title: 'Outcome', cell: ({ code }) => <Outcome code={code} /> },
  ];
}
