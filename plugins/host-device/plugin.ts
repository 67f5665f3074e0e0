// What does the host-device plugin do for each verb?

import { existsSync, readlinkSync } from 'node:fs';
import { basename, isAbsolute, join } from 'node:path';
import {
  type ContainerAddressing,
  callIpam,
  cidrsOf,
  prepareIpam,
  refuseHostsOwn,
  removeAndRelease,
} from '../../src/attach/addressing.ts';
import {
  addRoutes,
  addressContainer,
  awaitDuplicateDetection,
  describeInterface,
  ignoreNeighbours,
} from '../../src/attach/container.ts';
import {
  checkLayer3,
  checkReported,
  findDevice,
  planAddresses,
  planLayer3,
  renderLone,
  repairsOf,
  requirePrevResult,
} from '../../src/attach/device.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { pciDeviceInfo } from '../../src/cni/device-info.ts';
import { attempt, invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import { atLeast, type Result } from '../../src/cni/result.ts';
import { putFile, removeFile, sweepUnfinished } from '../../src/files/put-file.ts';
import { namesIn } from '../../src/files/read-file.ts';
import { parseCidr, renderCidr } from '../../src/net/ip.ts';
import { requireLinkChanges } from '../../src/netlink/rtnl/kinds.ts';
import { findLink, getLink, type Link, setLink } from '../../src/netlink/rtnl/link.ts';
import { restoreRoutes } from '../../src/netlink/rtnl/route.ts';
import { addRule, listRules, removeRule } from '../../src/netlink/rtnl/rule.ts';
import { tolerating } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, type KeptAttachments } from '../../src/plugin/define.ts';
import { confirm, requireReadiness, tryAll } from '../../src/plugin/steps.ts';
import { Errno } from '../../src/sys/errno.ts';
import { findNetnsCookie } from '../../src/sys/netns-identity.ts';
import { HostDeviceConf, selectorOf } from './config.ts';
import {
  giveBack,
  giveBackUnrecorded,
  isMeant,
  mergeNetworks,
  networkOf,
  type OwnNetwork,
  ownNetwork,
  rulesFor,
  type Taken,
  take,
  tryGiveBack,
} from './move.ts';
import {
  type DeviceRecord,
  findRecord,
  type Inside,
  listRecords,
  type RecordedRule,
  recordDirOf,
  removeOutdated,
  removeUnreadable,
  writeRecord,
} from './record.ts';
import { select } from './select.ts';

/** Moves a device of the host into a container, and back. */
export const plugin = definePlugin({
  name: 'host-device',
  config: HostDeviceConf,
  netns: 'required',

  async add(call) {
    const askIpam = prepareIpam(call);
    // The device first: an IPAM plugin such as dhcp asks through it.
    const taken = take(call);
    if (taken.kind === 'userspace') {
      if (call.conf.useInterfaceNetwork)
        throw invalidConfig(
          'Cannot use host-device configuration: "useInterfaceNetwork" needs an interface, but a program in user space drives this device',
        );
      writeDeviceInfo(call, taken.pciAddress);
      const { ifname: name, netns: sandbox } = call.env;
      // IPAM's addresses are for the program that drives it.
      return renderLone(call, { name, sandbox, ...pciIdOf(call, taken.pciAddress) }, await askIpam());
    }
    ignoreNeighbours(call, taken.link.name);
    writeDeviceInfo(call, pciAddressOf(taken.link));
    const own = call.conf.useInterfaceNetwork ? copyNetwork(call, taken) : undefined;
    const ipam = await askIpam();
    const addressing = mergeNetworks(own && networkOf(own), ipam);
    // With a network of its own, a device may get routes alone.
    const planned = ipam && !own ? planAddresses(ipam, call.conf.ipam?.type) : planLayer3(ipam ?? {});
    refuseHostsOwn(call, { index: taken.lower }, planned.ips);
    await configure(call, taken.link, planned, own);
    if (own) copyRules(call, taken.record.rules);
    const link = getLink(call.container, taken.link.index);
    const entry = { ...describeInterface(call, link), ...pciIdOf(call, pciAddressOf(link)) };
    return renderLone(call, entry, ipam, addressing);
  },

  async check(call) {
    const selector = selectorOf(call.conf);
    await callIpam(call, 'check');
    const prevResult = requirePrevResult(call);
    if (select(call.host, selector).kind !== 'userspace') checkDevice(call, prevResult);
  },

  async repair(call) {
    if (select(call.host, selectorOf(call.conf)).kind !== 'userspace') await repairDevice(call);
  },

  async del(call) {
    await removeAndRelease(call, 'del', async release => {
      await returnDevice(call);
      await release();
    });
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await removeAndRelease(call, 'gc', release => tryAll([() => returnStale(call, kept), release]));
  },

  async status(call) {
    await probeDevice(call);
    await callIpam(call, 'status');
  },
});

async function returnDevice(call: Call<HostDeviceConf>): Promise<void> {
  const attachment = attachmentOf(call);
  const record = findRecord(call.environment, attachment);
  if (record) await giveBack(call, record, insideOf(call, record));
  else giveBackUnrecorded(call);
  removeUnreadable(call.environment, attachment);
}

/** A namespace at the same path may be that of another container. */
function insideOf(call: Call<HostDeviceConf>, { netns: { cookie } }: DeviceRecord): Inside | undefined {
  if (call.findContainerNetns() === undefined) return undefined;
  if (cookie !== undefined && findNetnsCookie(call.env.netns) !== cookie) return undefined;
  return { socket: call.container, netns: call.containerNetns };
}

/** What the device had on the host; the rules are noted in the record first, so that DEL can remove them. */
function copyNetwork(call: Call<HostDeviceConf>, { record, link }: Taken): OwnNetwork {
  const own = ownNetwork(record, link.index);
  record.rules = rulesFor(own.routes, listRules(call.host));
  writeRecord(call.environment, record);
  return own;
}

/**
 * Compares device, addresses, routes and rules in the container with the result of ADD and the record.
 * @throws Error naming the first difference
 */
function checkDevice(call: Call<HostDeviceConf>, prevResult: Result): void {
  const record = findRecord(call.environment, attachmentOf(call));
  const found = findDevice(call, prevResult);
  const { name, link } = found;
  checkReported(found);
  // The reference's DEL, and ours without a record, finds the name of the device there.
  if (record) confirm(`alias of ${name}`, record.name, link.attrs.alias);
  checkLayer3(call, link, prevResult);
  if (record?.rules.length) checkRules(call, record.rules);
}

function checkRules({ container, env }: Call, rules: readonly { from: string; table: number }[]): void {
  const present = listRules(container);
  for (const { from, table } of rules) {
    const { ip, prefix } = parseCidr(from);
    const found = present.some(rule => {
      return rule.table === table && rule.from?.prefix === prefix && rule.from.ip.value === ip.value;
    });
    if (!found) confirm(`rules of "${env.netns}"`, `from ${from} lookup ${table}`, 'none');
  }
}

/** Returns the devices of the network's attachments that GC does not keep. All are tried. */
async function returnStale(call: Call, kept: KeptAttachments): Promise<void> {
  const { environment, log, network } = call;
  // Listed before they are judged: see KeptAttachments.
  const stale = listRecords(environment).filter(record => record.network === network && !kept.has(record));
  await tryAll([
    ...stale.map(record => () => {
      log.info(
        `Returning device "${record.name}" of stale attachment ${record.containerId}/${record.ifname}`,
      );
      if (!tryGiveBack(call, record)) {
        log.warn(`Device "${record.name}" of container "${record.containerId}" is not on the host`);
      }
    }),
    () => removeOutdated(environment, network),
    () => void sweepUnfinished(recordDirOf(environment)),
  ]);
}

/**
 * Restores the interface, its alias, the container's routes and the copied rules.
 * @throws Error when the interface is missing: only a new ADD can fetch the device
 */
async function repairDevice(call: Call<HostDeviceConf>): Promise<void> {
  const { conf, container, env, prevResult } = call;
  const link = findLink(container, env.ifname);
  const record = findRecord(call.environment, attachmentOf(call));
  if (!prevResult || !link) {
    throw new Error(`Cannot repair the attachment: only DEL and ADD can fetch the device of "${env.ifname}"`);
  }
  await tryAll([
    ...repairsOf(call, link),
    () => {
      if (record && link.attrs.alias !== record.name) setLink(container, link.index, { alias: record.name });
    },
    () => {
      if (record && conf.useInterfaceNetwork) restoreRoutes(container, ownNetwork(record, link.index).routes);
    },
    () => copyRules(call, record?.rules ?? []),
  ]);
}

/** The key of a result's entry for a device on the PCI bus. */
function pciIdOf({ version }: Call, pciID: string | undefined): { readonly pciID?: string } {
  return atLeast(version, '1.1.0') ? defined({ pciID }) : {};
}

/** Undefined for a device that is on no PCI bus. */
function pciAddressOf({ attrs: { parentDevBusName, parentDevName } }: Link): string | undefined {
  return parentDevBusName === 'pci' ? parentDevName : undefined;
}

/**
 * Looks for the device on the host. One that a container has is no failure: the runtime would refuse all other containers too. If
 * the runtime names the device of each container, there is none to look for. Changes nothing.
 * @throws CniError 50
 */
async function probeDevice(call: Call<HostDeviceConf>): Promise<void> {
  const { conf, environment, host } = call;
  if (conf.capabilities?.deviceID && !conf.runtimeConfig?.deviceID) return;
  const selector = selectorOf(conf);
  await requireReadiness(() => {
    requireLinkChanges(host);
    const found = select(host, selector);
    if (found.kind !== 'absent') return;
    if (listRecords(environment).some(record => isMeant(record, selector))) return;
    throw new Error(found.why);
  });
}

/**
 * Writes the file that the caller names, unless the device plugin has already told all of it there. Registers its own undo step:
 * once ADD has succeeded, the file is the caller's.
 * @param sys where sysfs is mounted
 * @throws CniError 7 for a path that is not absolute, 5 when it cannot be written
 */
export function writeDeviceInfo(
  { conf, onFailure }: Pick<Call<HostDeviceConf>, 'conf' | 'onFailure'>,
  address: string | undefined,
  sys = '/sys',
): void {
  const file = conf.runtimeConfig?.CNIDeviceInfoFile;
  if (!file || address === undefined) return;
  if (!isAbsolute(file)) {
    const what = `"runtimeConfig.CNIDeviceInfoFile" is "${file}", expected an absolute path`;
    throw invalidConfig(`Cannot use host-device configuration: ${what}`);
  }
  if (existsSync(file)) return;
  const dir = join(sys, 'bus/pci/devices', address);
  const [rdmaDevice] = namesIn(join(dir, 'infiniband')).sort();
  onFailure('remove device information', () => removeFile(file, 'device information'));
  // Undefined for a device that is no virtual function.
  const physicalAddress = attempt(() => basename(readlinkSync(join(dir, 'physfn'))));
  const info = pciDeviceInfo({ address, rdmaDevice, physicalAddress });
  putFile(file, JSON.stringify(info), { what: 'device information' });
}

/**
 * Addresses the interface and brings it up. Other hosts share its link, so IPv6 duplicate address detection stays on, and is awaited
 * if there is a carrier.
 * @param own addresses and routes that the device had on the host, which come first
 * @throws Error when another host has one of the addresses
 */
async function configure(
  call: Call,
  link: Link,
  { ips, routes }: ContainerAddressing,
  own: OwnNetwork = { addresses: [], routes: [] },
): Promise<void> {
  const { container } = call;
  const cidrs = cidrsOf(ips);
  const known = new Set(cidrs.map(renderCidr));
  const kept = own.addresses.filter(({ cidr }) => !known.has(renderCidr(cidr)));
  if (cidrs.length + kept.length === 0) setLink(container, link.index, { up: true });
  else addressContainer(call, link, cidrs, true, kept);
  const [refused] = restoreRoutes(container, own.routes);
  if (refused) throw refused;
  addRoutes(container, link, routes);
  if (![...cidrs, ...kept.map(({ cidr }) => cidr)].some(({ ip }) => ip.family === 6)) return;
  await awaitDuplicateDetection(container, link);
}

/** Copies rules into the container; existing ones stay, and those that were added are removed when ADD fails. */
function copyRules(call: Call, rules: readonly RecordedRule[]): void {
  for (const { from, table, priority } of rules) {
    const rule = { from: parseCidr(from), table, priority };
    const isAdded = tolerating([Errno.EEXIST], () => {
      addRule(call.container, rule);
      return true;
    });
    if (isAdded) call.onFailure(`delete the rule for ${from}`, () => removeRule(call.container, rule));
  }
}
