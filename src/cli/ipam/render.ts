// How are leases shown to a person and to a program?
import type { AnswerOf } from '../../answers/kinds.ts';
import type { InspectedLease } from '../../ipam/inspect.ts';
import { count } from '../../lab/words.ts';
import type { LeasePlace } from './place.ts';

/** A lease and its location. */
export type FoundLease = InspectedLease & LeasePlace;

const STATES: Readonly<Record<InspectedLease['state'], string>> = {
  live: 'live: the address is in use',
  new: 'new: written less than a minute ago, an ADD may be running',
  unused: 'unused: its owner no longer exists',
  unknown: 'unknown: nothing shows whether it is in use',
};

/** A table of leases, with the number of leases in each state. @param wide with the time and the evidence */
export function renderLeases(leases: readonly FoundLease[], wide = false): string {
  const rows = leases.map(({ network, address, owner, state, writtenAt, evidence }) => [
    network,
    address,
    owner?.containerId ?? '-',
    owner?.ifname ?? '-',
    state,
    ...(wide ? [writtenAt.toISOString(), evidence.join('; ')] : []),
  ]);
  const head = ['NETWORK', 'ADDRESS', 'CONTAINER', 'INTERFACE', 'STATE'];
  const table = [[...head, ...(wide ? ['WRITTEN', 'EVIDENCE'] : [])], ...rows];
  const counts = Object.keys(STATES).flatMap(state => {
    const number = leases.filter(lease => lease.state === state).length;
    return number ? `${number} ${state}` : [];
  });
  return `${renderTable(table)}\n${count(leases.length, 'lease')}${counts.length ? `: ${counts.join(', ')}` : ''}\n`;
}

/** A table of pools. @param wide with a line for each node that holds blocks */
export function renderPools(pools: AnswerOf<'ClusterPoolList'>['items'], wide = false): string {
  const rows = pools.flatMap(({ network, pool, blockSize, blocks, claimed, nodes }) => {
    const share = blocks > 0 ? `${Math.round((100 * claimed) / blocks)} %` : '-';
    const own = [network, pool, `${blocks}`, `${blockSize}`, `${claimed}`, share, `${nodes.length}`];
    if (!wide) return [own];
    return [
      own,
      ...nodes.map(one => {
        const notes = [
          ...(one.orphaned ? [`${one.orphaned} orphaned`] : []),
          ...(one.kept ? [`${one.kept} kept`] : []),
        ];
        return ['', '', '', '', `${one.blocks}`, notes.join(', '), one.node];
      }),
    ];
  });
  return renderTable([['NETWORK', 'POOL', 'BLOCKS', 'BLOCK SIZE', 'CLAIMED', 'SHARE', 'NODES'], ...rows]);
}

function renderTable(table: readonly (readonly string[])[]): string {
  const widths = (table[0] ?? []).map((_, column) => Math.max(...table.map(row => row[column]?.length ?? 0)));
  const lines = table.map(row =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  return `${lines.join('\n')}\n`;
}

/** Everything known about one lease, the conclusion last. */
export function renderReason({ network, address, owner, state, evidence }: FoundLease): string {
  const holder = owner
    ? `container "${owner.containerId}"${owner.ifname ? `, interface "${owner.ifname}"` : ''}`
    : 'an unknown owner (the lease does not name one)';
  return [
    `${address} of network "${network}" is leased to ${holder}`,
    ...evidence.map(line => `- ${line}`),
    STATES[state],
    '',
  ].join('\n');
}

/** A lease as JSON. */
export function toJson({
  network,
  address,
  owner,
  state,
  evidence,
  writtenAt,
}: FoundLease): AnswerOf<'Lease'> {
  return {
    network,
    address,
    ...(owner ? { containerId: owner.containerId } : {}),
    ...(owner?.ifname ? { ifname: owner.ifname } : {}),
    state,
    evidence,
    writtenAt: writtenAt.toISOString(),
  };
}
