// What does the macvlan plugin do for each verb?

import { existsSync } from 'node:fs';
import { callIpam, hostsOf } from '../../src/attach/addressing.ts';
import { addDevice, addressesFromResult, removeDevices, renderDevice } from '../../src/attach/device.ts';
import { derivedMac, requestedMac } from '../../src/attach/mac-and-mtu.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import {
  checkUpper,
  findMaster,
  loneInterface,
  type Master,
  makeUpper,
  probeUpper,
  removeStaleUppers,
  repairUpper,
} from '../../src/attach/upper.ts';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import type { Ip } from '../../src/net/ip.ts';
import { type NewUpper, setUpper } from '../../src/netlink/rtnl/kinds.ts';
import { kindDataOf, type Link, MACVLAN_MODES } from '../../src/netlink/rtnl/link.ts';
import { isNetlinkError } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, type KeptAttachments } from '../../src/plugin/define.ts';
import { confirm, mend, requireReadiness } from '../../src/plugin/steps.ts';
import { Errno } from '../../src/sys/errno.ts';
import { MacvlanConf, modeOf, validateMacvlanConf } from './config.ts';

type MacvlanCall = Call<MacvlanConf>;

/** What lets the host reach the container, for those who ask for it. */
const loadAccess = () => import('./host-access.ts');

/** The same, if there may be such access: the configuration may have changed since an ADD. */
async function loadIfConcerned({ conf, host }: MacvlanCall) {
  const access = await loadAccess();
  return conf.hostAccess || access.hasDevices(host) ? access : undefined;
}

/** Ends the host's access, after the container's interface was deleted. @param kept for GC: ends that of all other attachments */
async function closeAccess(call: MacvlanCall, kept?: KeptAttachments): Promise<void> {
  (await loadIfConcerned(call))?.closeHostAccess(call, kept);
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
    if (call.conf.hostAccess) {
      const { openHostAccess } = await loadAccess();
      call.onFailure("close the host's access", () => closeAccess(call));
      openHostAccess(call, addressed.link, hostsOf(addressed.addressing?.ips ?? []));
    }
    return renderDevice(call, addressed, call.prevResult);
  },

  async check(call) {
    await callIpam(call, 'check');
    const link = checkMacvlan(call);
    if (call.conf.hostAccess) (await loadAccess()).checkHostAccess(call, link, reportedIps(call));
  },

  async repair(call) {
    const link = await repairMacvlan(call);
    if (call.conf.hostAccess) (await loadAccess()).restoreHostAccess(call, link, reportedIps(call));
  },

  async handOver(call) {
    if (!(await loadIfConcerned(call))?.isOpenTo(call)) return [];
    // The reference's DEL would leave it open for the next container of the address.
    throw new Error(
      `Cannot hand over "${call.env.ifname}": only our DEL ends the host's access to it ("hostAccess"); delete the container first`,
    );
  },

  del: call => removeDevices(call, 'macvlan', () => closeAccess(call)),
  gc: call => removeStaleUppers(call, 'macvlan', kept => closeAccess(call, kept)),

  async status(call) {
    await probeUpper(call, 'macvlan', { examine: refuseWireless });
    if (call.conf.hostAccess) {
      const { probeHostAccess } = await loadAccess();
      await requireReadiness(() => probeHostAccess(call));
    }
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
 * @throws CniError 7 when there is no usable master, 11 when it is down, 4 when the container has an interface of that name
 */
function createMacvlan(call: Call<MacvlanConf>): Link {
  const { conf } = call;
  const mac = requestedMac(call, call.conf.mac);
  const master = findMaster(call, chainedMaster(conf, call.prevResult));
  if (!conf.linkInContainer) refuseWireless(master);
  return makeUpper(call, master, planMacvlan(conf, attachmentOf(call), master.link, mac));
}

/**
 * The device on a master. In mode `passthru` the device replaces the master, whose hardware address the kernel gives it.
 * @param mac requested hardware address
 */
export function planMacvlan(
  conf: MacvlanConf,
  attachment: AttachmentId,
  master: Pick<Link, 'mac'>,
  mac: string | undefined,
): Pick<NewUpper<'macvlan'>, 'kind' | 'data' | 'mac' | 'mtu'> {
  const mode = modeOf(conf);
  const derived = mode === 'passthru' ? undefined : derivedMac(attachment, master.mac ?? '');
  return {
    kind: 'macvlan',
    data: { mode: MACVLAN_MODES[mode], ...(conf.bcqueuelen ? { queueLength: conf.bcqueuelen } : {}) },
    mac: mac ?? derived,
    mtu: conf.mtu,
  };
}

/** The master that an earlier plugin of the chain made, if none is configured: the only interface of its result, where the master is looked for. */
export function chainedMaster({ master, linkInContainer }: MacvlanConf, prevResult: Result | undefined) {
  if (master) return undefined;
  const lone = loneInterface(prevResult);
  return lone && Boolean(lone.sandbox) === linkInContainer ? lone.name : undefined;
}

/**
 * Restores the device with its mode.
 * @throws Error when the device is missing: only a new ADD can make it
 */
async function repairMacvlan(call: Call<MacvlanConf>): Promise<Link> {
  const { conf, container } = call;
  const link = await repairUpper(call, 'macvlan');
  mend(
    () => checkMode(conf, link),
    () => setUpper(container, link.index, 'macvlan', { mode: MACVLAN_MODES[modeOf(conf)] }),
  );
  return link;
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
  const length = kindDataOf(link, 'macvlan')?.queueLength;
  if (bcqueuelen && length !== undefined) {
    confirm(`broadcast queue length of interface "${link.name}"`, bcqueuelen, length);
  }
  return link;
}

/** @throws Error when the mode differs */
function checkMode(conf: MacvlanConf, link: Link): void {
  const found = kindDataOf(link, 'macvlan')?.mode;
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
