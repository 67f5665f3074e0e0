// What does bandwidth do for each verb?
import { attachmentOf } from '../../src/attach/owner.ts';
import { type AttachmentId, findOwner } from '../../src/cni/attachment.ts';
import { attempt, CniError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import type { Result, ResultInterface } from '../../src/cni/result.ts';
import { listIngressFilters } from '../../src/netlink/rtnl/filter.ts';
import { requireLinkKind, requireQdiscKind } from '../../src/netlink/rtnl/kinds.ts';
import { findLinks, type Link, removeLinks } from '../../src/netlink/rtnl/link.ts';
import { listQdiscs, ticksPerUs } from '../../src/netlink/rtnl/qdisc.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin, isStaleNote, type KeptAttachments } from '../../src/plugin/define.ts';
import { mend, requireResult } from '../../src/plugin/steps.ts';
import {
  BandwidthConf,
  ignoresRuntime,
  isUnlimited,
  LIMIT_OPTIONS,
  type Limits,
  limitsOf,
  runtimeLimitsOf,
} from './config.ts';
import {
  applyShaping,
  findIfbs,
  findRenamedIfbs,
  findShapedDevices,
  getShapedDevice,
  ifbNamesOf,
  listIfbs,
  removeShaping,
  type ShapedDevice,
  verifyShaping,
} from './kernel.ts';
import { planShaping, type Shaper, type Shaping } from './plan.ts';

const NO_RESULT =
  'Cannot limit bandwidth: "prevResult" is missing; must be called as a chained plugin, after one that creates an interface';

/** Limits the rate of packets to and from a container, at the host end of its veth or at the interface itself. */
export const plugin = definePlugin({
  name: 'bandwidth',
  config: BandwidthConf,
  since: '0.3.0',
  netns: 'required',
  changeable: [...LIMIT_OPTIONS, 'shapedSubnets', 'unshapedSubnets'],

  async add(call) {
    const limits = limitsOf(call.conf, call.request);
    const prevResult = requireResult(call, NO_RESULT);
    if (ignoresRuntime(call.conf, call.request)) {
      call.log.warn('ignoring the limits from the runtime: the configuration has its own');
    }
    if (isUnlimited(limits)) return prevResult;
    const device = getShapedDevice(call, prevResult);
    const shaping = planFor(device, limits);
    warnOfBurst(call, 'ingress', shaping.ingress);
    warnOfBurst(call, 'egress', shaping.egress);
    const attachment = attachmentOf(call);
    call.onFailure('remove the limits', async () => {
      // The redirect is removed before its target, so that no packet is redirected to a missing device.
      const ifbs = findIfbs(device.socket, attachment);
      removeShaping(device, ifbs);
      await removeIfbs(call, device, ifbs);
    });
    const { ifb, unused } = applyShaping(device, attachment, shaping);
    await removeIfbs(call, device, unused);
    return resultWith(prevResult, attachment, device, ifb);
  },

  check(call) {
    const limits = limitsOf(call.conf, call.request);
    const prevResult = requireResult(call, NO_RESULT);
    if (isUnlimited(limits)) return;
    const device = getShapedDevice(call, prevResult);
    verifyShaping(device, attachmentOf(call), planFor(device, limits));
  },

  async repair(call) {
    const limits = limitsOf(call.conf, call.request);
    if (isUnlimited(limits)) return;
    const [device, attachment] = [getShapedDevice(call, requireResult(call, NO_RESULT)), attachmentOf(call)];
    const shaping = planFor(device, limits);
    let unused: readonly Link[] = [];
    mend(
      () => verifyShaping(device, attachment, shaping),
      () => {
        unused = applyShaping(device, attachment, shaping).unused;
      },
    );
    await removeIfbs(call, device, unused);
  },

  async change(call, mode, former) {
    const limits = limitsOf(call.conf, call.request);
    // What is only written in another way is no change.
    const [asked, before] = [call.conf, former].map(conf => conf && attempt(() => runtimeLimitsOf(conf)));
    if (mode === 'look' && ignoresRuntime(call.conf, call.request) && !Bun.deepEquals(asked, before)) {
      throw invalidConfig('Cannot change the limits: the configuration has its own, which take precedence', {
        details: `change ${LIMIT_OPTIONS.join(', ')} of "bandwidth" (catena set --conf)`,
      });
    }
    const prevResult = requireResult(call, NO_RESULT);
    const [device, attachment] = [getShapedDevice(call, prevResult), attachmentOf(call)];
    if (mode === 'look') return prevResult;
    const { ifb, unused } = applyShaping(device, attachment, planFor(device, limits));
    await removeIfbs(call, device, unused);
    return resultWith(prevResult, attachment, device, ifb);
  },

  async del(call) {
    // Ignores the current configuration: limits may exist in any case.
    const attachment = attachmentOf(call);
    const devices = findShapedDevices(call);
    const inside = devices.filter(({ netns }) => netns);
    for (const device of inside) {
      const own = findIfbs(device.socket, attachment);
      removeShaping(device, own);
      await removeIfbs(call, device, own);
    }
    // Of an interface that the container has renamed, which is deleted with what else it has.
    if (inside.length === 0 && call.findContainerNetns()) {
      const left = findIfbs(call.container, attachment).map(({ index }) => index);
      removeLinks(call.container, left);
    }
    const { host } = call;
    const named = findIfbs(host, attachment);
    // Without the result it may be the DEL of what an earlier one has left.
    const isThorough = named.length === 0 && call.prevResult === undefined;
    const ifbs = isThorough ? findRenamedIfbs(host, attachment) : named;
    const veths = devices.filter(({ netns }) => !netns);
    await call.removeDevices(ifbs, () => {
      // With a main plugin of ours, they have disappeared together with the IFB device.
      const present = findLinks(
        host,
        veths.map(({ link }) => link.index),
      );
      const left = veths.filter(({ link }, i) => present[i]?.name === link.name);
      for (const veth of left) removeShaping(veth, ifbs);
    });
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await call.removeDevices(await findGarbage(call.host, call.network, kept));
  },

  status(call) {
    try {
      requireLinkKind(call.host, 'ifb');
      requireQdiscKind(call.host, 'tbf');
      const { shapedSubnets, unshapedSubnets } = call.conf;
      if (shapedSubnets || unshapedSubnets) requireQdiscKind(call.host, 'htb');
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, 'Cannot limit bandwidth on this node', {
        details: (cause as Error).message,
        cause,
      });
    }
  },
});

function planFor({ link }: ShapedDevice, limits: Limits): Shaping {
  return planShaping(limits, { mtu: link.mtu, ticksPerUs: ticksPerUs() });
}

/** Those of the host are deleted together with the devices of other plugins, which takes the kernel less time. */
async function removeIfbs(call: Call, { socket, netns }: ShapedDevice, ifbs: readonly Link[]): Promise<void> {
  if (netns === undefined) await call.removeDevices(ifbs);
  else
    removeLinks(
      socket,
      ifbs.map(({ index }) => index),
    );
}

function warnOfBurst({ log }: Call, direction: string, shaper: Shaper | undefined): void {
  const { raisedFromBits, unlimitedMs } = shaper?.bucket ?? {};
  if (raisedFromBits !== undefined) {
    log.warn(`${direction}Burst is smaller than a frame and was raised to one`, {
      configured: raisedFromBits,
    });
  }
  if (unlimitedMs !== undefined) {
    log.warn(`${direction}Burst passes all traffic for a while: it may be larger than intended`, {
      milliseconds_at_10_gbit: unlimitedMs,
    });
  }
}

/** An ADD of the reference takes a few milliseconds between creating the device and redirecting to it. */
const ADD_MAY_TAKE_MS = 1_000;

/**
 * Devices of the network's attachments that GC does not keep, and devices without a note and without a redirect to them: their
 * veth no longer exists, so they are garbage, whether the reference or we made them and for whatever network.
 */
async function findGarbage(host: NetlinkSocket, network: string, kept: KeptAttachments): Promise<Link[]> {
  const ifbs = listIfbs(host);
  const unkept = ifbs.filter(({ attrs }) => isStaleNote(attrs.alias, network, kept));
  const unnoted = ifbs.filter(
    link =>
      findOwner(link.attrs.alias) === undefined && !kept.some(one => ifbNamesOf(one).includes(link.name)),
  );
  const unled = findUnled(host, unnoted);
  if (unled.length === 0) return unkept;
  await Bun.sleep(ADD_MAY_TAKE_MS);
  return [...unkept, ...findUnled(host, unled)];
}

/** Those to which no device redirects its incoming packets. */
function findUnled(host: NetlinkSocket, ifbs: readonly Link[]): Link[] {
  if (ifbs.length === 0) return [];
  const hooks = listQdiscs(host).filter(({ kind }) => kind === 'ingress' || kind === 'clsact');
  const targets = hooks.flatMap(({ index }) =>
    listIngressFilters(host, index).map(({ redirectAllTo }) => redirectAllTo),
  );
  return ifbs.filter(({ index }) => !targets.includes(index));
}

/**
 * The result with this IFB device as the attachment's only one, or without any; addresses keep their interfaces. One in the container
 * stays out of it: readers take the interfaces of a container's namespace for its own (`network-status` of other delegate runners
 * reports the last of them).
 */
function resultWith(
  result: Result,
  attachment: AttachmentId,
  { netns }: ShapedDevice,
  found: Link | undefined,
): Result {
  const ifb = netns === undefined ? found : undefined;
  const { interfaces = [], ips } = result;
  const names: readonly string[] = ifbNamesOf(attachment);
  const isOther = ({ name, sandbox }: ResultInterface) => Boolean(sandbox) || !names.includes(name);
  const others = interfaces.filter(isOther);
  if (ifb === undefined && others.length === interfaces.length) return result;
  const own = ifb ? [{ name: ifb.name, ...(ifb.mac ? { mac: ifb.mac } : {}) }] : [];
  return {
    ...result,
    interfaces: [...others, ...own],
    ...(ips && {
      ips: ips.map(ip => {
        const of = ip.interface === undefined ? undefined : interfaces[ip.interface];
        return of && isOther(of) ? { ...ip, interface: others.indexOf(of) } : ip;
      }),
    }),
  };
}
