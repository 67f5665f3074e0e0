// Which ports of the host lead where?
import type { JSX } from 'preact';
import { keyOf } from '../../cni/attachment.ts';
import { conditionOf } from '../../node/graph/layout.ts';
import type { NodeAttachment, NodePort } from '../../node/model.ts';
import { titleOf } from '../../node/words.ts';
import { Badge } from './badge.tsx';
import { endOf, hrefOf, hrefOfPacket, type ViewProps } from './route.ts';
import { matcherOf, textOf } from './search.ts';
import { type Column, Name, Table } from './table.tsx';

interface Row {
  readonly port: NodePort;
  readonly one: NodeAttachment;
}

const COLUMNS: readonly Column<Row>[] = [
  { title: 'Host port', cell: ({ port }) => `${port.hostPort}/${port.protocol}` },
  { title: 'Host address', cell: ({ port }) => port.hostIP ?? 'every address' },
  {
    title: 'Leads to',
    cell: ({ one }) => (
      <a href={hrefOf(one)}>
        <Name text={titleOf(one)} />
      </a>
    ),
  },
  { title: 'Container port', cell: ({ port }) => port.containerPort, isNumber: true },
  { title: 'Network', cell: ({ one }) => one.network },
  {
    title: 'Packet',
    cell: ({ port }) => <a href={hrefOfPacket('outside', endOf(port))}>follow it</a>,
  },
  { title: 'Health', cell: ({ one }) => <Badge condition={conditionOf(one)} /> },
];

export function Ports({ node, query }: ViewProps): JSX.Element {
  const matches = matcherOf(query);
  const rows = node.attachments
    .filter(one => matches(textOf(one)))
    .flatMap(one => one.ports.map(port => ({ port, one })))
    .toSorted((a, b) => a.port.hostPort - b.port.hostPort);
  return (
    <section aria-labelledby="ports-title">
      <h2 id="ports-title" tabIndex={-1}>
        Ports
      </h2>
      {rows.length === 0 ? (
        <p class="quiet">No port of the host leads to a container{query === '' ? '' : ' that matches'}.</p>
      ) : (
        <Table
          caption="Ports of the host that lead to containers"
          columns={COLUMNS}
          rows={rows}
          keyOf={({ port, one }) => JSON.stringify([port, keyOf(one)])}
        />
      )}
    </section>
  );
}
