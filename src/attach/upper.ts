// On which device of the host is the container's device made?

import { findOwner, interimName, renderOwner } from '../cni/attachment.ts';
import { invalidConfig, tryAgainLater } from '../cni/errors.ts';
import type { Result, ResultInterface } from '../cni/result.ts';
import type { PluginConfig } from '../cni/schemas.ts';
import { type NamespaceVisit, visitNamespaces } from '../ipam/holders.ts';
import { findIfnameProblem } from '../net/interface.ts';
import { createUpper, type NewUpper, requireLinkKind, type UpperKind } from '../netlink/rtnl/kinds.ts';
import {
  ALIAS_MAX_BYTES,
  findLink,
  getLink,
  isUnknownKind,
  type Link,
  listLinks,
  ownIdIn,
  removeLink,
  setLinkRequest,
} from '../netlink/rtnl/link.ts';
import { isNetlinkError, type NetlinkSocket } from '../netlink/socket.ts';
import type { Call, Done, KeptAttachments } from '../plugin/define.ts';
import { confirm, requireReadiness, throwAll, tryAll } from '../plugin/steps.ts';
import { Errno } from '../sys/errno.ts';
import { removeAndRelease } from './addressing.ts';
import { interfaceExists } from './container.ts';
import { checkDevice, repairDevice, stateOf } from './device.ts';
import { findDefaultRoute } from './mac-and-mtu.ts';
import { attachmentOf } from './owner.ts';

type UpperConf = PluginConfig & {
  /** Empty or absent: the interface of the default route. */
  readonly master?: string | undefined;
  /** Look for the master in the container. */
  readonly linkInContainer: boolean;
  /** Bytes; 0 for the master's. */
  readonly mtu: number;
  readonly detectConflicts?: boolean | undefined;
};

/** The lower device, and the socket of its namespace. */
export interface Master {
  readonly link: Link;
  readonly socket: NetlinkSocket;
}

/**
 * Finds the configured master, or the interface of the default route. It must carry the MTU, and be up: a container on one that is down is
 * mute, and the kernel does not bring up a VLAN device on it at all. What an earlier plugin made may come up later in its chain.
 * @param chained name of an interface that an earlier plugin of the chain made, to be used unless a master is configured
 * @throws CniError 7 when there is none, or it carries less, 11 when it is down
 */
export function findMaster(call: Call<UpperConf>, chained?: string): Master {
  const { conf } = call;
  const socket = conf.linkInContainer ? call.container : call.host;
  const name = conf.master || chained;
  // The first default route of the main table, of IPv4 if both families have one.
  const which = name || findDefaultRoute(socket)?.oif;
  const link = which === undefined ? undefined : findLink(socket, which);
  if (link === undefined) {
    const where = conf.linkInContainer ? ' in the container' : '';
    throw invalidConfig(
      name
        ? `Cannot find master interface "${name}"${where}; create it, or correct "master"`
        : `Cannot find a master interface: there is no default route${where}; set "master"`,
    );
  }
  if (conf.mtu > link.mtu) {
    throw invalidConfig(
      `Cannot use "mtu" ${conf.mtu}: master interface "${link.name}" carries at most ${link.mtu}; use 0 for that`,
    );
  }
  if (chained === undefined && stateOf(link) === 'down') {
    throw tryAgainLater(
      `Cannot use master interface "${link.name}": it is down; run: ip link set ${link.name} up`,
    );
  }
  return { link, socket };
}

/** The only interface in the result of the plugin before; undefined if it has none, several, or one without a name. */
export function loneInterface(prevResult: Result | undefined): ResultInterface | undefined {
  const [one, ...more] = prevResult?.interfaces ?? [];
  return one?.name && more.length === 0 ? one : undefined;
}

/** What is wrong with `master`, in human-readable form. */
export function findMasterProblem(master: string | undefined): string | undefined {
  const problem = master ? findIfnameProblem(master) : undefined;
  return problem && `"master" is "${master}": ${problem}`;
}

/** The properties of the new device; it gets the name of the attachment's interface unless another is given. */
type UpperPlan<K extends UpperKind> = Omit<NewUpper<K>, 'lower' | 'netnsFd' | 'name'> & {
  readonly name?: string;
};

/**
 * Creates the device in the container, down, with the attachment as its alias, and registers its removal.
 *
 * It is made under a name derived from the attachment, and gets name and alias in one request: so DEL recognises it whenever ADD was
 * killed. Another reason is that the kernel, before Linux 6.15, refuses a name that a device of the lower device's namespace has, as a
 * host has an `eth0`.
 * @throws CniError 4 when the container has an interface of that name, 7 when the master cannot carry the device
 */
export function makeUpper<K extends UpperKind>(call: Call, master: Master, plan: UpperPlan<K>): Link {
  const { container } = call;
  const name = plan.name ?? call.env.ifname;
  const interim = interimName(attachmentOf(call));
  create(call, master, plan, interim);
  let which: string | number = interim;
  call.onFailure(`delete device "${name}"`, () => removeLink(container, which));
  const link = getLink(container, interim);
  which = link.index;
  const alias = renderOwner(attachmentOf(call), ALIAS_MAX_BYTES);
  try {
    container.requestAll([setLinkRequest(link.index, { name, alias })]);
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.EEXIST)) throw interfaceExists(name, call.containerNetns, thrown);
    throw thrown;
  }
  return { ...link, name };
}

function create<K extends UpperKind>(
  { container, containerNetns: netns }: Call,
  { link: lower, socket }: Master,
  plan: UpperPlan<K>,
  name: string,
): void {
  const netnsFd = socket === container ? undefined : netns.fd;
  const upper = { ...plan, name, lower: lower.index, netnsFd };
  try {
    createUpper(socket, upper);
  } catch (thrown) {
    if (!isNetlinkError(thrown, Errno.EEXIST) || findLink(container, name) === undefined)
      throw explainRefusal(thrown, { lower, socket, kind: plan.kind });
    // An ADD that was killed has left it; the runtime never runs two for one attachment.
    removeLink(container, name);
    createUpper(socket, upper);
  }
}

/** The lower device, the socket of its namespace, and the kind of device that was refused. */
interface RefusedUpper {
  readonly lower: Link;
  readonly socket: NetlinkSocket;
  readonly kind: UpperKind;
}

/**
 * A sentence in place of the kernel's number. The kernel counts all children of a master, also those in other namespaces, which
 * cannot be listed from here.
 * @returns what to throw: a CniError 7, or the kernel's own refusal
 */
export function explainRefusal(thrown: unknown, refused: RefusedUpper): unknown {
  const why = whyRefused(thrown, refused);
  if (why === undefined) return thrown;
  const { lower, kind } = refused;
  return invalidConfig(`Cannot create an interface of kind ${kind} on master "${lower.name}": ${why}`, {
    cause: thrown,
    details: (thrown as Error).message,
  });
}

function whyRefused(thrown: unknown, { lower, socket, kind }: RefusedUpper): string | undefined {
  if (isNetlinkError(thrown, Errno.EBUSY)) {
    const port = lower.master ? (findLink(socket, lower.master)?.name ?? `index ${lower.master}`) : undefined;
    if (port !== undefined) return `it is a port of "${port}"; use that as master`;
    const other = { macvlan: 'ipvlan', macvtap: 'ipvlan', ipvlan: 'macvlan', vlan: undefined }[kind];
    if (other === undefined) return undefined;
    return `it is in use by another driver; interfaces of kind macvlan and ipvlan exclude each other on one master, so delete those of kind ${other} or use another master`;
  }
  if (isNetlinkError(thrown, Errno.EINVAL) && kind === 'macvlan') {
    return 'it is not an Ethernet device, or mode "passthru" is involved, which allows one interface for each master; delete the others or use another master';
  }
  if (isNetlinkError(thrown, Errno.EEXIST) && kind === 'vlan') {
    return 'it has this VLAN already; two containers cannot share one VLAN of a master: use plugin bridge with "vlan", or macvlan on a VLAN device of the host';
  }
  return isNetlinkError(thrown, Errno.EOPNOTSUPP) && !isUnknownKind(thrown)
    ? 'it does not support them; use another master'
    : undefined;
}

/**
 * Compares the device with the result of ADD, and its lower device with the configuration. If that names no master, the device's own
 * lower device counts: the default route may have changed since, which does not affect the attachment.
 * @param lowestOf the device on the master, if there are others between it and the interface
 * @throws Error naming the first difference, CniError 7 without a result
 */
export function checkUpper(call: Call<UpperConf>, kind: UpperKind, lowestOf?: LowestOf): Link {
  return checkDevice(call, expectationOf(call, kind, lowestOf));
}

/** Restores what {@link checkUpper} compares, but for the master. @throws Error as repairDevice() */
export function repairUpper(call: Call<UpperConf>, kind: UpperKind, lowestOf?: LowestOf): Promise<Link> {
  return repairDevice(call, expectationOf(call, kind, lowestOf));
}

type LowestOf = (link: Link) => Link;

function expectationOf(call: Call<UpperConf>, kind: UpperKind, lowestOf: LowestOf = link => link) {
  // The kernel lowers a device's MTU with its master's.
  const checkLower = (link: Link) => checkMaster(call, lowestOf(link)).mtu;
  return { kind, mtu: call.conf.mtu, probes: call.conf.detectConflicts, checkLower };
}

function checkMaster({ conf, container, host }: Call<UpperConf>, link: Link): Link {
  const name = `master of "${link.name}"`;
  const socket = conf.linkInContainer ? container : host;
  const expected = conf.linkInContainer ? undefined : ownIdIn(container);
  confirm(`namespace of the ${name}`, expected, link.attrs.linkNetnsId);
  const master = findLink(socket, link.peer);
  if (master === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  // The configuration may have another name of it (`ip link property add dev eth0 altname enp3s0`).
  if (conf.master) confirm(name, findLink(socket, conf.master)?.name ?? conf.master, master.name);
  confirm(`state of "${master.name}", the ${name}`, 'up', stateOf(master));
  return master;
}

/**
 * Looks for anything that would make ADD fail: a missing kind of device, a master that is missing, down, or too small for the
 * MTU. A master in the container cannot be examined, since STATUS has no container. Changes nothing.
 * @param options `examine`: further requirements of the plugin on its master; `isChained`: the plugin before makes the master
 * @throws CniError 50
 */
export function probeUpper(
  call: Call<UpperConf>,
  kind: UpperKind,
  { examine, isChained = false }: { examine?: (master: Master) => void; isChained?: boolean } = {},
): Promise<void> {
  const { conf, host } = call;
  return requireReadiness(() => {
    requireLinkKind(host, kind);
    if (conf.linkInContainer || isChained) return;
    const master = findMaster(call);
    examine?.(master);
  });
}

// Such a device usually ended with its container. If the namespace still exists, its address could not be handed out again.

/**
 * Deletes the network's devices whose attachments GC does not keep, and has the addresses collected. Only devices count whose lower
 * device is in this namespace: a node that runs inside this machine has attachments of its own.
 * @param then what has to wait until they are gone, too
 */
export async function removeStaleUppers(
  call: Call<PluginConfig>,
  kind: UpperKind,
  then: (kept: KeptAttachments) => Done = () => {},
): Promise<void> {
  const { kept } = call;
  if (kept === undefined) return;
  await removeAndRelease(call, 'gc', release =>
    tryAll([() => removeStale(call, kind, kept), () => then(kept), release]),
  );
}

function removeStale(call: Call, kind: UpperKind, kept: KeptAttachments): void {
  const problems: unknown[] = [];
  const removeIn = ({ socket, hostId }: NamespaceVisit): void => {
    if (hostId === undefined) return;
    for (const { index, name, kind: present, attrs } of listLinks(socket)) {
      const owner = present === kind && attrs.linkNetnsId === hostId ? findOwner(attrs.alias) : undefined;
      if (owner?.network !== call.network || kept.has(owner)) continue;
      call.log.info(`Deleting interface "${name}" of stale attachment ${owner.containerId}/${owner.ifname}`);
      try {
        removeLink(socket, index);
      } catch (thrown) {
        problems.push(thrown);
      }
    }
  };
  tryAll([() => void visitNamespaces(removeIn), () => throwAll(problems)]);
}
