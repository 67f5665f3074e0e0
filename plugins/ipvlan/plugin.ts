// What does the ipvlan plugin do for each verb?

import { callIpam } from '../../src/attach/addressing.ts';
import { addDevice, removeDevices, renderDevice } from '../../src/attach/device.ts';
import {
  checkUpper,
  findMaster,
  loneInterface,
  makeUpper,
  probeUpper,
  removeStaleUppers,
  repairUpper,
} from '../../src/attach/upper.ts';

import { pickCniArgs } from '../../src/cni/env.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { setUpper, type UpperData } from '../../src/netlink/rtnl/kinds.ts';
import { IPVLAN_FLAGS, IPVLAN_MODES, kindDataOf, type Link } from '../../src/netlink/rtnl/link.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { confirm, mend } from '../../src/plugin/steps.ts';
import { flagsOf, IpvlanConf, modeOf, validateIpvlanConf } from './config.ts';

/** Connects a container to the link of a host interface, with that interface's hardware address. */
export const plugin = definePlugin({
  name: 'ipvlan',
  config: IpvlanConf,
  netns: 'required',
  validate: validateIpvlanConf,

  async add(call) {
    const { conf, prevResult } = call;
    const given = givenAddresses(conf, prevResult);
    // No probe for IPv4 addresses: the kernel passes an answer on by the address that it is for, and a probe has none.
    const addressed = await addDevice(call, () => createIpvlan(call), { given, shared: true });
    // Addresses that it took over are reported once, as those of this interface.
    return renderDevice(call, addressed, given ? { ...prevResult, ips: [], routes: [] } : prevResult);
  },

  async check(call) {
    await callIpam(call, 'check');
    checkModeAndFlags(call.conf, checkUpper(call, 'ipvlan'));
  },

  repair: repairIpvlan,

  del: call => removeDevices(call, 'ipvlan'),
  gc: call => removeStaleUppers(call, 'ipvlan'),

  async status(call) {
    const { conf } = call;
    // Without an IPAM plugin it takes master and addresses from the plugin before, which STATUS does not know.
    const isChained = !conf.master && !conf.ipam?.type;
    await probeUpper(call, 'ipvlan', { isChained });
    await callIpam(call, 'status');
  },
});

/**
 * Restores the device with its mode and flags. The kernel has one mode and one set of flags for all interfaces of a
 * master.
 * @throws Error when the device is missing: only a new ADD can make it
 */
async function repairIpvlan(call: Call<IpvlanConf>): Promise<void> {
  const link = await repairUpper(call, 'ipvlan');
  mend(
    () => checkModeAndFlags(call.conf, link),
    () => setUpper(call.container, link.index, 'ipvlan', dataOf(call.conf)),
  );
}

/** @throws Error naming the first difference */
function checkModeAndFlags(conf: IpvlanConf, link: Link): void {
  const { mode, flags = 0 } = kindDataOf(link, 'ipvlan') ?? {};
  const name = `interface "${link.name}"`;
  confirm(`mode of ${name}`, modeOf(conf), keyOf(IPVLAN_MODES, mode));
  confirm(`flags of ${name}`, flagsOf(conf), keyOf(IPVLAN_FLAGS, flags));
}

function keyOf(table: Readonly<Record<string, number>>, value: number | undefined): string | undefined {
  return Object.keys(table).find(key => table[key] === value);
}

/**
 * Creates the device in the container, down and without addresses. Registers its own undo step.
 * @throws CniError 7 when there is no usable master, 11 when it is down, 4 when the container has an interface of that name
 */
function createIpvlan(call: Call<IpvlanConf>): Link {
  const { conf } = call;
  // All plugins of a chain get the arguments, and another one may be meant.
  if (pickCniArgs(call.args, ['MAC']).MAC) {
    call.log.warn(
      'Cannot use MAC of CNI_ARGS: all ipvlan interfaces have the hardware address of their master',
    );
  }
  const master = findMaster(call, chainedMaster(conf, call.prevResult));
  return makeUpper(call, master, { kind: 'ipvlan', data: dataOf(conf), mtu: conf.mtu });
}

function dataOf(conf: IpvlanConf): Required<Pick<UpperData['ipvlan'], 'mode' | 'flags'>> {
  return { mode: IPVLAN_MODES[modeOf(conf)], flags: IPVLAN_FLAGS[flagsOf(conf)] };
}

/**
 * The master that an earlier plugin of the chain made: the only interface of its result. Undefined when a master is configured, or
 * when this plugin is the first.
 * @throws CniError 7 when the result has another number of interfaces
 */
export function chainedMaster({ master }: IpvlanConf, prevResult: Result | undefined): string | undefined {
  if (master || prevResult === undefined) return undefined;
  const lone = loneInterface(prevResult);
  if (lone) return lone.name;
  throw invalidConfig(
    `Cannot choose a master: the result of the plugin before has ${prevResult.interfaces?.length ?? 0} interfaces, expected one; set "master"`,
  );
}

/** Addresses, routes and resolvers that an earlier plugin of the chain obtained, if there is no IPAM plugin to ask. */
export function givenAddresses({ ipam }: IpvlanConf, prevResult: Result | undefined): Result | undefined {
  if (ipam?.type || !prevResult?.ips?.length) return undefined;
  const { ips, routes = [], dns } = prevResult;
  return { ips, routes, ...(dns ? { dns } : {}) };
}
