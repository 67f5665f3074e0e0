// How is the device made in the container, checked, restored and removed?
import type { ContainerAddressing } from '../../src/attach/addressing.ts';
import { checkAddresses, checkMac, stateOf } from '../../src/attach/check.ts';
import { configureContainer } from '../../src/attach/container.ts';
import { addRoutes, checkRoutes } from '../../src/attach/routes.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { addAddress } from '../../src/netlink/rtnl/addr.ts';
import { findLink, type Link, makeLink, removeLink, setLink } from '../../src/netlink/rtnl/link.ts';
import { confirm } from '../../src/plugin/confirm.ts';
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
  if (link === undefined) {
    throw new CniError(
      ErrorCode.invalidEnvironment,
      `Cannot create interface "${env.ifname}" in "${env.netns}": an interface of that name exists; run DEL first`,
      { details: `CNI_IFNAME=${env.ifname}` },
    );
  }
  call.onFailure(`delete device "${link.name}"`, () => removeLink(container, link.index));
  return link;
}

/** Brings the device up, with addresses and routes if there are any. A dummy has no neighbours, so duplicates are not looked for. */
export function bringUp(call: Call, link: Link, addressing: ContainerAddressing | undefined): void {
  if (addressing) configureContainer(call, link, addressing, false);
  else setLink(call.container, link.index, { up: true });
}

/** @throws Error naming the first difference from what ADD made */
export function checkDummy(
  { container, env }: Call<DummyConf>,
  prevResult: Result,
  addressing: ContainerAddressing | undefined,
): void {
  const name = `interface "${env.ifname}"`;
  const reported = prevResult.interfaces?.find(one => one.name === env.ifname && one.sandbox === env.netns);
  confirm(`${name} of "${env.netns}" in the result`, env.ifname, reported?.name);
  const link = findLink(container, env.ifname);
  if (link === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  confirm(`kind of ${name}`, 'dummy', link.kind);
  checkMac(name, reported, link);
  // A later plugin such as tuning may legitimately have changed it, and then says so in the result.
  if (reported?.mtu !== undefined) confirm(`MTU of ${name}`, reported.mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  if (addressing === undefined) return;
  checkAddresses(
    container,
    link,
    addressing.ips.map(({ cidr }) => cidr),
  );
  checkRoutes(container, link, addressing.routes);
}

/** Brings the device up, and restores missing addresses and routes. @throws Error when the device itself is missing */
export async function repairDummy(
  { container, env }: Call<DummyConf>,
  { ips, routes }: ContainerAddressing,
): Promise<void> {
  const link = findLink(container, env.ifname);
  if (link?.kind !== 'dummy') {
    throw new Error(
      `Cannot repair the attachment: only DEL and ADD can recreate dummy device "${env.ifname}"`,
    );
  }
  if (stateOf(link) !== 'up') setLink(container, link.index, { up: true });
  await tryAll([
    ...ips.map(({ cidr }) => () => {
      mend(
        () => checkAddresses(container, link, [cidr]),
        () => addAddress(container, link.index, cidr, { nodad: true }),
      );
    }),
    () => {
      mend(
        () => checkRoutes(container, link, routes),
        () => addRoutes(container, link, routes),
      );
    },
  ]);
}

/** Deletes the device; one of another kind is not ours and is kept. Without a namespace the device is gone already. */
export function removeDummy(call: Call): void {
  if (call.findContainerNetns() === undefined) return;
  const { container, env } = call;
  const link = findLink(container, env.ifname);
  if (link?.kind === 'dummy') removeLink(container, link.index);
  else if (link) {
    call.log.warn(
      `Cannot delete "${env.ifname}": it is of kind "${link.kind}", not the dummy that this plugin created`,
    );
  }
}
