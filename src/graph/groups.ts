// What do attachments have in common, so that they are drawn together?
import type { NodeAttachment, NodeBridge } from '../node/model.ts';

/** What attachments have in common: a bridge, a lower device, the host's routing, or no device at all. */
export interface Group {
  readonly key: string;
  readonly title: string;
  readonly kind: 'bridge' | 'device' | 'routed' | 'none';
  /** Addresses and state of its device. */
  readonly notes: readonly string[];
  readonly isUp: boolean;
  /** Ports of the bridge that belong to no attachment: the way out. */
  readonly uplinks: readonly string[];
  readonly members: readonly NodeAttachment[];
}

/** The groups of a node, bridges first. An attachment without a device is placed with others of its network. */
export function groupsOf(bridges: readonly NodeBridge[], attachments: readonly NodeAttachment[]): Group[] {
  const keyFor = ({ hostDevice }: NodeAttachment): string | undefined => {
    if (hostDevice === undefined) return undefined;
    if (hostDevice.master !== undefined) return `bridge ${hostDevice.master}`;
    return hostDevice.kind === 'veth' ? 'routed' : `device ${hostDevice.name}`;
  };
  const usual = new Map(attachments.flatMap(one => (keyFor(one) ? [[one.network, keyFor(one) ?? '']] : [])));
  const members = new Map<string, NodeAttachment[]>();
  for (const one of attachments) {
    const key = keyFor(one) ?? usual.get(one.network) ?? 'none';
    members.set(key, [...(members.get(key) ?? []), one]);
  }
  const ends = new Set(attachments.map(({ hostDevice }) => hostDevice?.name));
  const known = bridges.map(({ device, ports }): Group => {
    const key = `bridge ${device.name}`;
    return {
      ...{ key, title: device.name, kind: 'bridge', isUp: device.up, members: members.get(key) ?? [] },
      notes: [...device.addresses, ...(device.up ? [] : ['down'])],
      uplinks: ports.filter(name => !ends.has(name) && !/^(veth|tap)/.test(name)),
    };
  });
  const others = [...members.keys()].filter(key => !known.some(one => one.key === key));
  return [...known, ...others.sort().map(key => otherGroup(key, members.get(key) ?? []))];
}

function otherGroup(key: string, members: readonly NodeAttachment[]): Group {
  const [kind = '', name = ''] = key.split(' ');
  const device = members.map(({ hostDevice }) => hostDevice).find(one => one?.name === name);
  const shared = { key, members, uplinks: [] };
  if (kind === 'routed') return { ...shared, kind, title: 'routed', notes: ['by the host'], isUp: true };
  if (kind === 'none')
    return { ...shared, kind, title: 'no device', notes: ['nothing on the host'], isUp: false };
  const notes = [device?.kind ?? '', ...(device?.addresses ?? [])].filter(Boolean);
  return {
    ...shared,
    ...{ kind: kind === 'bridge' ? 'bridge' : 'device', title: name, notes, isUp: device?.up ?? true },
  };
}
