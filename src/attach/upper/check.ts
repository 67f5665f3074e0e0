// Is the container's device still on the master, as ADD made it?

import type { PluginConfig } from '../../cni/plugin-config.ts';
import { findLink, type Link } from '../../netlink/rtnl/link.ts';
import { ownIdIn } from '../../netlink/rtnl/netns-id.ts';
import { requireLinkKind } from '../../netlink/rtnl/supported.ts';
import type { UpperKind } from '../../netlink/rtnl/upper.ts';
import { confirm } from '../../plugin/confirm.ts';
import type { Call } from '../../plugin/define.ts';
import { stateOf } from '../check.ts';
import { checkDevice } from '../device/check.ts';
import { requireReadiness } from '../readiness.ts';
import { findMaster, type Master, type MasterConf, requireMtu } from './master.ts';

/** The keys of a configuration that CHECK compares. */
type UpperConf = PluginConfig & MasterConf & { readonly mtu: number };

/**
 * Compares the device with the result of ADD, and its lower device with the configuration. If that names no master, the device's own
 * lower device counts: the default route may have changed since, which does not affect the attachment.
 * @param lowestOf the device on the master, if there are others between it and the interface
 * @throws Error naming the first difference, CniError 7 without a result
 */
export function checkUpper(
  call: Call<UpperConf>,
  kind: UpperKind,
  lowestOf: (link: Link) => Link = link => link,
): Link {
  const { conf } = call;
  return checkDevice(call, {
    kind,
    mtu: conf.mtu,
    // The kernel lowers a device's MTU with its master's.
    checkLower: link => checkMaster(call, lowestOf(link)).mtu,
  });
}

function checkMaster({ conf, container, host }: Call<UpperConf>, link: Link): Link {
  const name = `master of "${link.name}"`;
  const socket = conf.linkInContainer ? container : host;
  const expected = conf.linkInContainer ? undefined : ownIdIn(container);
  confirm(`namespace of the ${name}`, expected, link.attrs.linkNetnsId);
  const master = findLink(socket, link.peer);
  if (master === undefined) throw new Error(`Cannot confirm ${name}: it is gone`);
  if (conf.master) confirm(name, conf.master, master.name);
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
): void {
  const { conf, host } = call;
  requireReadiness(() => {
    requireLinkKind(host, kind);
    if (conf.linkInContainer || isChained) return;
    const master = findMaster(call);
    if (stateOf(master.link) === 'down') {
      throw new Error(
        `master interface "${master.link.name}" is down; run: ip link set ${master.link.name} up`,
      );
    }
    requireMtu(conf.mtu, master);
    examine?.(master);
  });
}
