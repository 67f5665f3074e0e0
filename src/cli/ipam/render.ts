// How are leases shown to a person and to a program?
import type { JsonObject } from '../../cni/json.ts';
import type { InspectedLease } from '../../ipam/inspect.ts';
import type { LeasePlace } from './place.ts';

/** A lease and its location. */
export type FoundLease = InspectedLease & LeasePlace;

const STATES: Readonly<Record<InspectedLease['state'], string>> = {
  live: 'live: the address is in use',
  new: 'new: written less than a minute ago, an ADD may be running',
  unused: 'unused: its owner no longer exists',
  unknown: 'unknown: nothing shows whether it is in use',
};

/** A table of leases, with the number of leases in each state. */
export function renderLeases(leases: readonly FoundLease[]): string {
  const rows = leases.map(({ network, address, owner, state }) => [
    network,
    address,
    owner?.containerId ?? '-',
    owner?.ifname ?? '-',
    state,
  ]);
  const table = [['NETWORK', 'ADDRESS', 'CONTAINER', 'INTERFACE', 'STATE'], ...rows];
  const widths = [0, 1, 2, 3].map(column => Math.max(...table.map(row => row[column]?.length ?? 0)));
  const lines = table.map(row =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  const counts = Object.keys(STATES).flatMap(state => {
    const count = leases.filter(lease => lease.state === state).length;
    return count ? `${count} ${state}` : [];
  });
  return `${[...lines, '', `${leases.length} leases${counts.length ? `: ${counts.join(', ')}` : ''}`].join('\n')}\n`;
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
export function toJson({ network, address, owner, state, evidence, writtenAt }: FoundLease): JsonObject {
  return {
    network,
    address,
    ...(owner ? { containerID: owner.containerId } : {}),
    ...(owner?.ifname ? { ifname: owner.ifname } : {}),
    state,
    evidence,
    writtenAt: writtenAt.toISOString(),
  };
}
