// How do gateway addresses get onto the bridge, or onto the gateway port of a VLAN?
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { type Cidr, cidrsOverlap, renderCidr } from '../../../src/net/cidr.ts';
import { sameIp } from '../../../src/net/ip.ts';
import { isNetlinkError } from '../../../src/netlink/errors.ts';
import {
  type Address,
  addAddress,
  listAddresses,
  RT_SCOPE_LINK,
  removeAddress,
  restoreAddress,
} from '../../../src/netlink/rtnl/addr.ts';
import { getLink, type Link, setLink } from '../../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import { Errno } from '../../../src/sys/errno.ts';
import type { BridgeConf } from '../config.ts';
import { randomMac } from './random-mac.ts';

const NO_MAC = '00:00:00:00:00:00';

/**
 * Puts gateway addresses on an interface of the host. Only an overlapping subnet is a conflict, so several range sets
 * and foreign addresses live side by side, where the reference allows one IPv4 address. Registers its own undoing.
 * @throws CniError 7 on a conflict, unless `forceAddress` lets the gateway win
 * @returns the interface, with the hardware address that containers will see for the gateway
 */
export function ensureGateways(call: Call<BridgeConf>, target: Link, gateways: readonly Cidr[]): Link {
  const { conf, host } = call;
  const present = listAddresses(host, target.index);
  const missing = gateways.filter(gateway => !present.some(({ cidr }) => sameCidr(cidr, gateway)));
  for (const gateway of missing) {
    for (const rival of present.filter(address => isRival(address, gateway))) {
      if (!conf.forceAddress) throw overlap(target, rival, gateway);
      removeAddress(host, target.index, rival.cidr);
      call.onFailure(`put ${renderCidr(rival.cidr)} back`, () => restoreAddress(host, rival));
    }
  }
  for (const gateway of missing) {
    if (!add(host, target, gateway)) continue;
    call.onFailure(`take gateway ${renderCidr(gateway)} off "${target.name}"`, () =>
      removeAddress(host, target.index, gateway),
    );
  }
  return missing.length ? pinMac(host, target) : target;
}

/**
 * An adopted bridge as it is after our port joined. Without an explicit hardware address it takes that of a port; one
 * with a gateway gets its own back, for the sake of what containers have learned.
 */
export function keepMac(host: NetlinkSocket, bridge: Link, hasGateway: boolean): Link {
  const now = getLink(host, bridge.index);
  if (!hasGateway || now.mac === bridge.mac) return now;
  return pinMac(host, bridge);
}

/** True when the interface has a global address that is none of ours; without a list every one counts as ours. */
export function hasForeignAddress(
  socket: NetlinkSocket,
  link: Link,
  ours: readonly Cidr[] | undefined,
): boolean {
  if (ours === undefined) return false;
  return listAddresses(socket, link.index).some(
    ({ cidr, scope }) => scope !== RT_SCOPE_LINK && !ours.some(own => sameCidr(own, cidr)),
  );
}

/** An explicit address does not change with the ports. A bridge that lost its last port may have none at all. */
function pinMac(host: NetlinkSocket, target: Link): Link {
  const mac = target.mac && target.mac !== NO_MAC ? target.mac : randomMac();
  setLink(host, target.index, { mac });
  return { ...target, mac };
}

/** The kernel's own link-local address may share fe80::/64 with a gateway. */
function isRival({ cidr, scope }: Address, gateway: Cidr): boolean {
  return scope !== RT_SCOPE_LINK && cidrsOverlap(cidr, gateway);
}

function overlap(target: Link, rival: Address, gateway: Cidr): CniError {
  const [wanted, found] = [renderCidr(gateway), renderCidr(rival.cidr)];
  return new CniError(
    ErrorCode.invalidConfig,
    `Cannot add gateway ${wanted} to ${target.kind} "${target.name}": it has ${found}, whose subnet overlaps`,
    { details: 'set "forceAddress": true to replace that address' },
  );
}

/** @returns false when it was there: another ADD may have been faster. */
function add(host: NetlinkSocket, target: Link, cidr: Cidr): boolean {
  try {
    // The host is the only one who could claim the gateway's address: nothing to wait for.
    addAddress(host, target.index, cidr, { nodad: true });
    return true;
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.EEXIST)) return false;
    throw thrown;
  }
}

function sameCidr(a: Cidr, b: Cidr): boolean {
  return a.prefix === b.prefix && sameIp(a.ip, b.ip);
}
