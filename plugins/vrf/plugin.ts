// What does vrf do for each verb?
import { checkAddresses, stateOf } from '../../src/attach/check.ts';
import { awaitTraffic, type Stage } from '../../src/attach/ready.ts';
import { checkRoutes, putRoutesRight } from '../../src/attach/routes.ts';
import { CniError, describeError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { findLink, getLink, type Link } from '../../src/netlink/rtnl/link.ts';
import { requireLinkKind } from '../../src/netlink/rtnl/supported.ts';
import { confirm } from '../../src/plugin/confirm.ts';
import { type Call, definePlugin, nothingToDo } from '../../src/plugin/define.ts';
import { withContainerLock } from '../../src/plugin/lock.ts';
import { mend } from '../../src/plugin/mend.ts';
import { parseVrfConf, VrfConf } from './config.ts';
import { checkVrf, ensureVrf, findVrf, join, leave, removeUnusedVrf, vrfOf } from './device.ts';
import { reportedAddresses, reportedRoutes } from './plan.ts';

/** Moves the container's interface, with its routes, into a routing table of its own. */
export const vrf = definePlugin({
  name: 'vrf',
  config: VrfConf,
  netns: 'required',
  since: '0.3.1',

  async add(call) {
    const options = parseVrfConf(call.conf);
    const result = resultOf(call);
    const link = withContainerLock(call, () => {
      const own = getLink(call.container, call.env.ifname);
      join(call, own, ensureVrf(call, options));
      return own;
    });
    await awaitTraffic(call.log, stagesOf(call, link));
    return result;
  },

  check(call) {
    const options = parseVrfConf(call.conf);
    checkMember(call, options.name, options.table, resultOf(call));
  },

  repair(call) {
    const options = parseVrfConf(call.conf);
    const result = resultOf(call);
    const link = findLink(call.container, call.env.ifname);
    if (link === undefined) return;
    withContainerLock(call, () => {
      const own = ensureVrf(call, options);
      join(call, link, own);
      const routes = reportedRoutes(result, own.table);
      mend(
        () => checkRoutes(call.container, link, routes),
        () => putRoutesRight(call.container, link, routes),
      );
    });
  },

  del(call) {
    // The kernel deletes the VRF with the namespace.
    if (call.findContainerNetns() === undefined) return;
    withContainerLock(call, () => {
      // Another container may have been attached in the namespace during the wait.
      if (call.findContainerNetns(true) === undefined) return;
      const { container, conf } = call;
      const link = findLink(container, call.env.ifname);
      const member = link && vrfOf(container, link);
      // Without a usable name, the VRF is the one that the interface is in.
      const own = conf.vrfname ? findNamed(call, conf.vrfname) : member;
      if (own === undefined) return;
      if (link && member?.link.index === own.link.index) leave(call, link, own);
      removeUnusedVrf(container, own);
    });
  },

  gc: nothingToDo('the kernel deletes VRFs with the namespace'),

  status(call) {
    parseVrfConf(call.conf);
    try {
      requireLinkKind(call.host, 'vrf');
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, `Cannot use VRFs: ${describeError(cause)}`, { cause });
    }
  },
});

function resultOf({ prevResult }: Call): Result {
  if (prevResult !== undefined) return prevResult;
  throw new CniError(
    ErrorCode.invalidConfig,
    'Cannot use a VRF: the request has no "prevResult"; place this plugin after one that makes the interface',
  );
}

/** A device of another kind is not ours: DEL has nothing to do. */
function findNamed({ container, log }: Call, name: string): ReturnType<typeof findVrf> {
  try {
    return findVrf(container, name);
  } catch (thrown) {
    log.warn(`Cannot remove VRF "${name}": ${describeError(thrown)}`);
    return undefined;
  }
}

function checkMember(call: Call, name: string, table: number | undefined, result: Result): void {
  const { container, env } = call;
  const own = findVrf(container, name);
  if (own === undefined) throw new Error(`Cannot confirm VRF "${name}": it is gone`);
  if (table !== undefined) confirm(`table of VRF "${name}"`, table, own.table);
  confirm(`state of VRF "${name}"`, 'up', stateOf(own.link));
  const link = findLink(container, env.ifname);
  if (link === undefined) throw new Error(`Cannot confirm interface "${env.ifname}": it is gone`);
  confirm(`VRF of "${link.name}"`, name, vrfOf(container, link)?.link.name);
  checkAddresses(container, link, reportedAddresses(result, env.ifname));
  checkRoutes(container, link, reportedRoutes(result, own.table));
  checkVrf(container, own);
}

/** The interface, and the other end of a veth pair: both were down for a moment. */
function stagesOf({ container, host }: Call, link: Link): Stage[] {
  const outside = link.kind === 'veth' ? findLink(host, link.peer) : undefined;
  const isPeer = outside?.kind === 'veth' && outside.peer === link.index;
  return [
    { socket: container, link, ips: [] },
    ...(isPeer ? [{ socket: host, link: outside, ips: [] }] : []),
  ];
}
