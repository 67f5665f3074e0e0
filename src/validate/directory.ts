// Are the networks of a directory compatible with each other?
import { basename } from 'node:path';
import type { AddressRange } from '../cni/plugin-about.ts';
import { cidrsOverlap, renderCidr } from '../net/cidr.ts';
import { sameIp } from '../net/ip.ts';
import { atValue } from './document.ts';
import type { Finding } from './finding.ts';
import type { PlacedNetwork, PlacedPlugin } from './network.ts';
import { rangesOf } from './plugin.ts';

/**
 * Finds names that several files use, and subnets that several networks lease from.
 * @param networks in the order in which a runtime reads them
 */
export function judgeDirectory(networks: readonly PlacedNetwork[]): Finding[] {
  return [...judgeNames(networks), ...judgeSubnets(networks)];
}

function judgeNames(networks: readonly PlacedNetwork[]): Finding[] {
  return networks.flatMap((network, i) => {
    const first = networks.findIndex(other => other.name === network.name);
    const winner = networks[first];
    if (network.name === undefined || first === i || winner === undefined) return [];
    const { document } = network;
    const loses = `network "${network.name}" is also defined in "${winner.document.file}"`;
    // Lookup by name takes conflists before single configurations; container runtimes go by file names.
    const agreed = basename(winner.document.file) < basename(document.file);
    const message = agreed
      ? `${loses}, which is read first: this file is never used`
      : `${loses}: by network name the other file is found; runtimes that select by file name use this one`;
    return [atValue(document, ['name'], ['error', 'duplicate-name', message])];
  });
}

interface PlacedRange {
  readonly network: PlacedNetwork;
  readonly placed: PlacedPlugin;
  readonly range: AddressRange;
}

function judgeSubnets(networks: readonly PlacedNetwork[]): Finding[] {
  const ranges = networks.flatMap(network => {
    return network.plugins.flatMap(placed => rangesOf(placed).map(range => ({ network, placed, range })));
  });
  return ranges.flatMap((one, i) => {
    const earlier = ranges
      .slice(0, i)
      .filter(other => other.network.name !== one.network.name && clash(one, other));
    return earlier.map(other => {
      const { document, path } = one.placed;
      const theirs = atValue(
        other.placed.document,
        [...other.placed.path, ...other.range.path],
        ['warning', 'overlap', ''],
      );
      const message =
        `subnet ${renderCidr(one.range.subnet)} overlaps ${renderCidr(other.range.subnet)}` +
        ` of network "${other.network.name}" ("${theirs.file}" line ${theirs.line})`;
      return atValue(document, [...path, ...one.range.path], ['warning', 'overlap', message]);
    });
  });
}

/** Two networks may share a subnet if each has its own part of it. */
function clash({ range: a }: PlacedRange, { range: b }: PlacedRange): boolean {
  if (!cidrsOverlap(a.subnet, b.subnet)) return false;
  const shared = sameIp(a.subnet.ip, b.subnet.ip) && a.subnet.prefix === b.subnet.prefix;
  return !shared || (a.start.value <= b.end.value && b.start.value <= a.end.value);
}
