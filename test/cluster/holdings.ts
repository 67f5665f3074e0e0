// What does a node hold for its pods? Equal before a scenario and after it, or something leaks.

import type { Machine } from '../helpers/machine.ts';
import type { Row } from '../helpers/netns.ts';

/** Names of what attachments consist of, sorted. */
export interface Holdings {
  /** Devices, without those of the node itself. */
  readonly devices: readonly string[];
  /** Elements of the sets of our tables. */
  readonly elements: readonly string[];
  /** Leases, results, records, namespaces. */
  readonly files: readonly string[];
}

/** Made by the first pod, and kept: the bridge. */
const OF_NODE = ['lo', 'eth0', 'cni0'];

/** What a node holds now. */
export async function holdingsOf(machine: Machine): Promise<Holdings> {
  const { lab } = machine;
  const links = await lab.ip<Row[]>(lab.host, 'link', 'show');
  const { elements, files } = await machine.holds();
  return {
    devices: links
      .map(({ ifname }) => String(ifname))
      .filter(name => !OF_NODE.includes(name))
      .sort(),
    elements,
    files,
  };
}

/** A line for each thing that one of two has. @param stay names of devices that may remain, or go */
export function differences(before: Holdings, after: Holdings, stay?: RegExp): string[] {
  const mayStay = (kind: keyof Holdings, one: string): boolean =>
    kind === 'devices' && stay?.test(one) === true;
  return (['devices', 'elements', 'files'] as const).flatMap(kind => [
    ...after[kind]
      .filter(one => !before[kind].includes(one) && !mayStay(kind, one))
      .map(one => `${kind}: ${one} remains`),
    ...before[kind]
      .filter(one => !after[kind].includes(one) && !mayStay(kind, one))
      .map(one => `${kind}: ${one} is gone`),
  ]);
}
