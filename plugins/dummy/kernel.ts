// How is the device made in the container and restored?
import { checkAddresses, stateOf } from '../../src/attach/check.ts';
import { addressesFromResult } from '../../src/attach/device/plan.ts';
import { repairDevice } from '../../src/attach/device/repair.ts';
import { interfaceExists } from '../../src/attach/free-name.ts';
import { addAddress } from '../../src/netlink/rtnl/addr.ts';
import { findLink, type Link, makeLink, removeLink, setLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import type { DummyConf } from './config.ts';

/**
 * Makes the device, down, under its final name. Registers its own undo step.
 * @throws CniError 4 when the container already has an interface of that name
 */
export function createDummy(call: Call<DummyConf>, mac: string | undefined): Link {
  const { conf, container, env } = call;
  const link = makeLink(container, { name: env.ifname, kind: 'dummy', mac, mtu: conf.mtu || undefined });
  if (link === undefined) throw interfaceExists(env.ifname, call.containerNetns);
  call.onFailure(`delete device "${link.name}"`, () => removeLink(container, link.index));
  return link;
}

/**
 * Restores missing addresses, then what every device gets. No neighbour can have taken an address of a dummy.
 * @throws Error when the device itself is missing
 */
export async function repairDummy(call: Call<DummyConf>): Promise<void> {
  const { container, env, prevResult } = call;
  const link = findLink(container, env.ifname);
  if (link && stateOf(link) !== 'up') setLink(container, link.index, { up: true });
  const { ips } = prevResult && link ? addressesFromResult(prevResult, env.ifname, env.netns) : { ips: [] };
  await tryAll([
    ...ips.map(({ cidr }) => () => {
      mend(
        () => link && checkAddresses(container, link, [cidr]),
        () => link && addAddress(container, link.index, cidr, { nodad: true }),
      );
    }),
    () => void repairDevice(call, 'dummy'),
  ]);
}
