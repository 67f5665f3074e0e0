// Where does each part of the node's picture stand, on a page of any width?

import type { NodeAttachment, NodeBridge } from '../model.ts';
import { isBelow } from '../words.ts';

/** From bad to good, as the list is sorted. */
export const CONDITIONS = ['broken', 'unsettled', 'gone', 'unknown', 'unchecked', 'sound'] as const;
export type Condition = (typeof CONDITIONS)[number];

/** A sign and what it means, next to any colour. */
export const SIGNS: Readonly<Record<Condition, { readonly sign: string; readonly meaning: string }>> = {
  broken: { sign: '✕', meaning: 'CHECK fails' },
  unsettled: { sign: '!', meaning: 'an operation was interrupted or failed' },
  gone: { sign: '–', meaning: 'its namespace no longer exists' },
  unknown: { sign: '?', meaning: 'CHECK cannot be run' },
  unchecked: { sign: '…', meaning: 'not checked yet' },
  sound: { sign: '✓', meaning: 'CHECK passes' },
};

/** What CHECK reports comes first. */
export function conditionOf({ state, health }: Pick<NodeAttachment, 'state' | 'health'>): Condition {
  if (health?.state === 'broken') return 'broken';
  if (state !== 'attached') return state;
  return health?.state ?? 'unchecked';
}

export function isProblem(condition: Condition): boolean {
  return condition === 'broken' || condition === 'unsettled';
}

/** The attachments with problems first, otherwise in their order. */
export function worstFirst(attachments: readonly NodeAttachment[]): NodeAttachment[] {
  const rank = (one: NodeAttachment) => (isProblem(conditionOf(one)) ? 0 : 1);
  return attachments.toSorted((a, b) => rank(a) - rank(b));
}

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
  const keyFor = (one: NodeAttachment): string | undefined => {
    const { hostDevice } = one;
    if (hostDevice === undefined) return undefined;
    if (isBelow(one)) return `${hostDevice.kind === 'bridge' ? 'bridge' : 'device'} ${hostDevice.name}`;
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

/** A group with its place: the box of its device, and one cell for each attachment. */
export interface PlacedGroup extends Group {
  readonly y: number;
  readonly box: Box;
  readonly cells: readonly (Box & { readonly one: NodeAttachment })[];
  /** Cells show names. */
  readonly isLarge: boolean;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** More attachments than that become squares without text. */
const MOST_LARGE = 48;
const LARGE = { width: 150, height: 58, gapX: 10, gapY: 22 } as const;
/** Two fit beside each other on a phone. */
const LEAST_LARGE = 130;
const SMALL = { width: 12, height: 12, gapX: 4, gapY: 8 } as const;
const HOST = { x: 1, y: 1, width: 240, height: 34 } as const;
/** The trunk leaves the host here. */
export const TRUNK_X = 12;
const BOX_X = 34;
const BOX_WIDTH = 168;
const LINE = 17;
const GAP = 26;
const NARROW = 560;
/** Length of the line from a bus to a cell: the host end. */
export const STUB = 7;

/** @param width pixels that the page has */
export function layOut(groups: readonly Group[], width: number) {
  const narrow = isNarrow(width);
  const cellsX = narrow ? BOX_X : BOX_X + BOX_WIDTH + 30;
  const half = Math.floor((width - 2 - cellsX - LARGE.gapX) / 2);
  const largeWidth = narrow && half >= LEAST_LARGE ? Math.min(LARGE.width, half) : LARGE.width;
  let y = HOST.height + GAP;
  const placed = groups.map((group): PlacedGroup => {
    const lines = 1 + group.notes.length + group.uplinks.length;
    const box = { x: BOX_X, y, width: Math.min(BOX_WIDTH, width - BOX_X), height: 16 + LINE * lines };
    const isLarge = group.members.length <= MOST_LARGE;
    const size = isLarge ? { ...LARGE, width: largeWidth } : SMALL;
    const perRow = Math.max(1, Math.floor((width - 2 - cellsX + size.gapX) / (size.width + size.gapX)));
    const top = narrow ? box.y + box.height + size.gapY : box.y + (isLarge ? 12 : 8);
    const cells = group.members.map((one, i) => ({
      one,
      x: cellsX + (i % perRow) * (size.width + size.gapX),
      y: top + Math.floor(i / perRow) * (size.height + size.gapY),
      width: Math.min(size.width, width - cellsX),
      height: size.height,
    }));
    const bottom = Math.max(box.y + box.height, (cells.at(-1)?.y ?? 0) + size.height);
    const result = { ...group, y, box, cells, isLarge };
    y = bottom + GAP;
    return result;
  });
  const host = { ...HOST, width: Math.min(HOST.width, width - 2) };
  return { width, height: y - GAP + 2, host, groups: placed };
}

/** The lines from the box of a group along the rows of its cells: one bus above each row, with a stub to each cell. */
export function linesOf({ box, cells }: PlacedGroup, width: number): string[] {
  const narrow = isNarrow(width);
  const rows = [...new Set(cells.map(({ y }) => y))];
  if (rows.length === 0) return [];
  const left = Math.min(...cells.map(({ x }) => x));
  const busX = narrow ? left - 8 : left - 14;
  const last = (rows.at(-1) ?? 0) - STUB;
  const first = (rows[0] ?? 0) - STUB;
  const trunk = narrow
    ? `M${box.x} ${box.y + box.height - 10}H${busX}V${last}`
    : `M${box.x + box.width} ${box.y + 16}H${busX}M${busX} ${Math.min(first, box.y + 16)}V${Math.max(last, box.y + 16)}`;
  const buses = rows.map(y => {
    const right = Math.max(...cells.filter(cell => cell.y === y).map(({ x, width }) => x + width / 2));
    return `M${busX} ${y - STUB}H${right}`;
  });
  return [trunk, ...buses];
}

/** Whether the boxes stand above their cells. */
export function isNarrow(width: number): boolean {
  return width < NARROW;
}
