// What does the macvlan plugin do for each verb?

import { existsSync } from 'node:fs';
import { callIpam, hostsOf } from '../../src/attach/addressing.ts';
import { addDevice, addressesFromResult, removeDevices, renderDevice } from '../../src/attach/device.ts';
import { derivedMac, requestedMac } from '../../src/attach/mac-and-mtu.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { requireReadiness } from '../../src/attach/ready.ts';
import {
  checkUpper,
  findMaster,
  loneInterface,
  type Master,
  makeUpper,
  probeUpper,
  removeStaleUppers,
  repairUpper,
  requireMtu,
} from '../../src/attach/upper.ts';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import type { Ip } from '../../src/net/ip.ts';
import { type NewUpper, setUpper, upperDataOf } from '../../src/netlink/rtnl/kinds.ts';
import { findLink, type Link, MACVLAN_MODES } from '../../src/netlink/rtnl/link.ts';
import { isNetlinkError } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, type KeptAttachments } from '../../src/plugin/define.ts';
import { confirm, mend } from '../../src/plugin/steps.ts';
import { Errno } from '../../src/sys/errno.ts';
import { MacvlanConf, modeOf, validateMacvlanConf } from './config.ts';

type MacvlanCall = Call<MacvlanConf>;

/** Lets the host reach the container, and no longer when ADD fails. @param inside the container's interface */
async function openAccess(call: MacvlanCall, inside: Link, ips: readonly Ip[]): Promise<void> {
  if (!call.conf.hostAccess) return;
  const { openHostAccess } = await import('./host-access.ts');
  call.onFailure("close the host's access", () => closeAccess(call));
  openHostAccess(call, inside, ips);
}

/** @throws Error naming what is missing of the host's access */
async function checkAccess(call: MacvlanCall, inside: Link): Promise<void> {
  if (!call.conf.hostAccess) return;
  const { checkHostAccess } = await import('./host-access.ts');
  checkHostAccess(call, inside, reportedIps(call));
}

/** Restores what is missing of the host's access. */
async function repairAccess(call: MacvlanCall): Promise<void> {
  const inside = call.conf.hostAccess ? findLink(call.container, call.env.ifname) : undefined;
  if (inside === undefined) return;
  const { openHostAccess } = await import('./host-access.ts');
  openHostAccess(call, inside, reportedIps(call));
}

/** Ends it, after the container's interface was deleted. */
async function closeAccess(call: MacvlanCall): Promise<void> {
  if (!(await isConcerned(call))) return;
  const { closeHostAccess } = await import('./host-access.ts');
  closeHostAccess(call);
}

/** Ends it for the network's attachments that GC does not keep. */
async function closeStaleAccess(call: MacvlanCall, kept: KeptAttachments): Promise<void> {
  if (!(await isConcerned(call))) return;
  const { closeStaleHostAccess } = await import('./host-access.ts');
  closeStaleHostAccess(call, kept);
}

/** @throws Error when the host has access: the reference's DEL would leave it open for the next container of the address */
async function refuseHandover(call: MacvlanCall): Promise<void> {
  const { isOpenTo } = await import('./host-access.ts');
  if (!(await isConcerned(call)) || !isOpenTo(call)) return;
  throw new Error(
    `Cannot hand over "${call.env.ifname}": only our DEL ends the host's access to it ("hostAccess"); delete the container first`,
  );
}

/** @throws CniError 50 when the kernel cannot restrict what enters by the host's device */
async function probeAccess(call: MacvlanCall): Promise<void> {
  if (!call.conf.hostAccess) return;
  const { probeHostAccess } = await import('./host-access.ts');
  requireReadiness(() => probeHostAccess(call));
}

/** The configuration may have changed since an ADD. */
async function isConcerned({ conf, host }: MacvlanCall): Promise<boolean> {
  if (conf.hostAccess) return true;
  const { hasDevices } = await import('./host-access.ts');
  return hasDevices(host);
}

function reportedIps({ prevResult, env }: MacvlanCall): Ip[] {
  return hostsOf(addressesFromResult(prevResult ?? {}, env.ifname, env.netns).ips);
}

/** Connects a container to the link of a host interface, with a hardware address of its own. */
export const plugin = definePlugin({
  name: 'macvlan',
  config: MacvlanConf,
  netns: 'required',
  validate: validateMacvlanConf,

  async add(call) {
    const probe = call.conf.detectConflicts;
    const addressed = await addDevice(call, () => createMacvlan(call), { shared: true, probe }).catch(
      thrown => {
        throw isNetlinkError(thrown, Errno.EADDRINUSE) ? takenMac(call, thrown) : thrown;
      },
    );
    await openAccess(call, addressed.link, hostsOf(addressed.addressing?.ips ?? []));
    return renderDevice(call, addressed, call.prevResult);
  },

  async check(call) {
    await callIpam(call, 'check');
    await checkAccess(call, checkMacvlan(call));
  },

  async repair(call) {
    await repairMacvlan(call);
    await repairAccess(call);
  },

  async handOver(call) {
    await refuseHandover(call);
    return [];
  },

  del: call => removeDevices(call, 'macvlan', () => closeAccess(call)),
  gc: call => removeStaleUppers(call, 'macvlan', kept => closeStaleAccess(call, kept)),

  async status(call) {
    probeUpper(call, 'macvlan', { examine: refuseWireless });
    await probeAccess(call);
    await callIpam(call, 'status');
  },
});

/** The kernel says so when the interface goes up: it knows those in other namespaces, too. */
function takenMac({ env }: Call, cause: Error): CniError {
  return invalidConfig(
    `Cannot attach "${env.ifname}": another interface on the master has its hardware address; request another one, or none`,
    { cause, details: cause.message },
  );
}

/**
 * Creates the device in the container, down and without addresses. Registers its own undo step.
 * @throws CniError 7 when there is no usable master, 4 when the container has an interface of that name
 */
function createMacvlan(call: Call<MacvlanConf>): Link {
  const { conf } = call;
  const mac = requestedMac(call, call.conf.mac);
  const master = findMaster(call, chainedMaster(conf, call.prevResult));
  requireMtu(conf.mtu, master);
  if (!conf.linkInContainer) refuseWireless(master);
  return makeUpper(call, master, planMacvlan(conf, attachmentOf(call), master.link, mac));
}

/** The properties of the device. */
type MacvlanPlan = Pick<NewUpper<'macvlan'>, 'kind' | 'data' | 'mac' | 'mtu'>;

/**
 * The device on a master. In mode `passthru` the device replaces the master, whose hardware address the kernel gives it.
 * @param mac requested hardware address
 */
export function planMacvlan(
  conf: MacvlanConf,
  attachment: AttachmentId,
  master: Pick<Link, 'mac'>,
  mac: string | undefined,
): MacvlanPlan {
  const mode = modeOf(conf);
  const derived = mode === 'passthru' ? undefined : derivedMac(attachment, master.mac ?? '');
  return {
    kind: 'macvlan',
    data: { mode: MACVLAN_MODES[mode], ...(conf.bcqueuelen ? { queueLength: conf.bcqueuelen } : {}) },
    mac: mac ?? derived,
    mtu: conf.mtu,
  };
}

/** The master that an earlier plugin of the chain made: the only interface of its result, where the master is looked for. */
export function chainedMaster({ linkInContainer }: MacvlanConf, prevResult: Result | undefined) {
  const lone = loneInterface(prevResult);
  return lone && Boolean(lone.sandbox) === linkInContainer ? lone.name : undefined;
}

/**
 * Restores the device with its mode.
 * @throws Error when the device is missing: only a new ADD can make it
 */
async function repairMacvlan(call: Call<MacvlanConf>): Promise<void> {
  const { conf, container } = call;
  const link = await repairUpper(call, 'macvlan');
  mend(
    () => checkMode(conf, link),
    () => setUpper(container, link.index, 'macvlan', { mode: MACVLAN_MODES[modeOf(conf)] }),
  );
}

/**
 * Compares device, master, addresses and routes with the result of ADD, and the mode with the configuration.
 * @returns the interface
 * @throws Error naming the first difference, CniError 7 without a result
 */
function checkMacvlan(call: Call<MacvlanConf>): Link {
  const link = checkUpper(call, 'macvlan');
  checkMode(call.conf, link);
  const { bcqueuelen } = call.conf;
  // Kernels before 5.13 report no length.
  const length = upperDataOf(link, 'macvlan')?.queueLength;
  if (bcqueuelen && length !== undefined) {
    confirm(`broadcast queue length of interface "${link.name}"`, bcqueuelen, length);
  }
  return link;
}

/** @throws Error when the mode differs */
function checkMode(conf: MacvlanConf, link: Link): void {
  const found = upperDataOf(link, 'macvlan')?.mode;
  const [name] = Object.entries(MACVLAN_MODES).find(([, mode]) => mode === found) ?? [];
  confirm(`mode of interface "${link.name}"`, modeOf(conf), name);
}

/**
 * Refuses a wireless master: an access point drops frames from hardware addresses that have not associated with it, so the container
 * would be mute.
 * @param sysfs where sysfs is mounted; it shows the devices of the host
 * @throws CniError 7
 */
export function refuseWireless({ link }: Pick<Master, 'link'>, sysfs = '/sys'): void {
  if (!existsSync(`${sysfs}/class/net/${link.name}/phy80211`)) return;
  throw invalidConfig(
    `Cannot use wireless interface "${link.name}" as master: an access point drops frames from the containers' hardware addresses; use plugin ipvlan, or a wired master`,
  );
}
