// Is everything that ADD made still as ADD made it?
import { checkMac, stateOf } from '../../src/attach/check.ts';
import { checkLayer3, findDevice } from '../../src/attach/device/check.ts';
import { addressesFromResult } from '../../src/attach/device/plan.ts';
import type { Result } from '../../src/cni/result.ts';
import type { ValuesOf } from '../../src/netlink/codec/attrs.ts';
import { findLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { MACVLAN_MODES, TUN_TYPE_TAP, type tun } from '../../src/netlink/rtnl/link-attrs.ts';
import { upperDataOf } from '../../src/netlink/rtnl/upper.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import type { Call } from '../../src/plugin/define.ts';
import { isMacvtap, type TapConf } from './config.ts';

/**
 * Compares the tap, its owner, bridge, addresses and routes with the configuration and the result of ADD.
 * @throws Error naming the first difference
 */
export function checkTap(call: Call<TapConf>, prevResult: Result): void {
  const { container, conf, env } = call;
  const { name, reported, link } = findDevice(call, prevResult);
  if (isMacvtap(conf)) checkMacvtap(call, name, link);
  else checkOwners(conf, name, link);
  checkMac(name, reported, link);
  // A later plugin such as tuning may legitimately have changed it, and then says so in the result.
  if (reported?.mtu !== undefined) confirm(`MTU of ${name}`, reported.mtu, link.mtu);
  confirm(`state of ${name}`, 'up', stateOf(link));
  if (conf.bridge) confirm(`bridge of ${name}`, findLink(container, conf.bridge)?.index, link.master);
  checkLayer3(call, link, addressesFromResult(prevResult, env.ifname, env.netns));
}

function checkOwners({ owner, group, multiQueue }: TapConf, name: string, link: Link): void {
  confirm(`kind of ${name}`, 'tun', link.kind);
  const data = tunDataOf(link);
  // Before Linux 4.18 the kernel does not report them.
  if (data?.type === undefined) return;
  confirm(`kind of ${name}`, TUN_TYPE_TAP, data.type);
  confirm(`persistence of ${name}`, 1, data.persist);
  confirm(`owner of ${name}`, owner, data.owner);
  confirm(`group of ${name}`, group, data.group);
  confirm(`"multiQueue" of ${name}`, Number(multiQueue), data.multiQueue);
}

function checkMacvtap({ conf, host }: Call<TapConf>, name: string, link: Link): void {
  confirm(`kind of ${name}`, 'macvtap', link.kind);
  const wanted = MACVLAN_MODES[conf.mode as keyof typeof MACVLAN_MODES];
  confirm(`mode of ${name}`, wanted, upperDataOf(link, 'macvtap')?.mode);
  confirm(`master of ${name}`, findLink(host, conf.master ?? '')?.index, link.peer);
}

function tunDataOf(link: Link): ValuesOf<typeof tun> | undefined {
  const data = link.attrs.linkinfo?.data;
  return data === undefined || data instanceof Uint8Array ? undefined : (data as ValuesOf<typeof tun>);
}
