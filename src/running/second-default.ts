// Did a network that was added to a running container take its default route?
//
// Of two default routes with the same metric the kernel uses the newer one: connections to the outside would leave through the new network.
import { CniError, ErrorCode } from '../cni/errors.ts';
import { type Inside, readInside } from '../node/devices.ts';
import type { ContainerPlace } from './place.ts';

const DEFAULTS = ['0.0.0.0/0', '::/0'];

/** @throws CniError 7 if the interface has a default route of a family in which the container had one before */
export function refuseSecondDefault(
  {
    place: { netns, inside },
    list,
  }: { readonly place: ContainerPlace; readonly list: { readonly name: string } },
  ifname: string,
): void {
  const before = new Set([...inside].flatMap(([name, one]) => (name === ifname ? [] : defaultsOf(one))));
  const added = readInside(netns)?.get(ifname);
  const second = added && defaultsOf(added).find(destination => before.has(destination));
  if (second === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot attach to network "${list.name}": it adds a second default route (${second}), which would take the container's traffic; ` +
      'use a list without one, or allow it (--default-route)',
  );
}

function defaultsOf({ routes }: Inside): string[] {
  return routes.map(({ destination }) => destination).filter(one => DEFAULTS.includes(one));
}
