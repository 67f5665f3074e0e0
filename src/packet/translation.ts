// Does the node lead a port of its own to the container that the port is mapped to?
import type { Packet } from '../doctor/filter/packet.ts';
import { hop, lost, type Walk } from './report.ts';
import type { Passed } from './rules.ts';
import type { Site } from './site.ts';

/** A port of the node that leads to a container, as its ADD asked for. */
export interface Mapping {
  /** Command that makes its rules again. */
  readonly repair: string;
  readonly address: string;
  /** The only address of the node that leads there. */
  readonly hostIP: string | undefined;
  readonly containerPort: number;
}

/** Compares where the rules of the node led the packet with where they should have. */
export function* judgeTranslation(
  node: Site,
  before: Packet,
  { packet, by, undo }: Passed,
  mapping: Mapping | undefined,
): Walk {
  const to = `${renderHost(packet.destination)}:${packet.port}`;
  if (mapping === undefined) {
    if (by !== undefined) yield hop(node, before, 'translation', 'passes', `${by} leads it to ${to}`);
    return;
  }
  const { address, containerPort, repair } = mapping;
  if (packet.destination === address && packet.port === containerPort) {
    yield hop(node, before, 'translation', 'passes', `${by ?? 'the packet'} leads it to ${to}`);
    return;
  }
  if (by !== undefined) {
    yield hop(node, before, 'translation', 'stops', `${by} leads it to ${to} instead`, undo ?? repair);
    return;
  }
  const protocol = before.protocol === 17 ? 17 : 6;
  const words = `no rule leads port ${before.port} to it`;
  if (node.listeners(protocol)?.some(({ port }) => port === before.port) !== false)
    yield lost(node, before, 'translation', `${words}, but a process of the node may pass it on`);
  else yield hop(node, before, 'translation', 'stops', words, repair);
}

function renderHost(address = ''): string {
  return address.includes(':') ? `[${address}]` : address;
}
