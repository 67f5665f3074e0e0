// By which device does the host route to the pod, and which port of a bridge leads to it?
import { defined } from '../../../src/cni/defined.ts';
import { CniError, ErrorCode } from '../../../src/cni/errors.ts';
import type { Ip } from '../../../src/net/ip.ts';
import { findLink, type Link } from '../../../src/netlink/rtnl/link.ts';
import { findWay } from '../../../src/netlink/rtnl/route-lookup.ts';
import type { NetlinkSocket } from '../../../src/netlink/socket.ts';
import type { Call } from '../../../src/plugin/define.ts';
import type { Ingress } from '../plan.ts';

/** Adds the device by which the host routes to the pod. Without such a route, packets come from the bridge itself. */
export function withHome(host: NetlinkSocket, ingress: Ingress, pods: readonly Ip[]): Ingress {
  const home = pods.flatMap(pod => findHome(host, pod) ?? [])[0];
  return { ...ingress, ...defined({ home }) };
}

/** The device by which the host routes to an address on one of its own links; undefined when it is on none. */
export function findHome(host: NetlinkSocket, pod: Ip): string | undefined {
  const way = findWay(host, pod);
  return way && !way.local && !way.gateway ? findLink(host, way.oif)?.name : undefined;
}

/**
 * Adds the port that `isolated` needs: the other end of the pod's interface, or the interface of the result that is a port of the
 * bridge. Behind an interface that is not a bridge there are neither neighbours nor ports.
 * @throws CniError 7 when no port of the bridge belongs to the pod
 */
export function withPort(call: Call, ingress: Ingress): Ingress {
  if (ingress.policy !== 'isolated') return ingress;
  const bridge = findLink(call.host, ingress.bridge);
  if (bridge?.kind !== 'bridge') return ingress;
  const isPort = (link: Link | undefined): link is Link => link?.master === bridge.index;
  const reported = () =>
    (call.prevResult?.interfaces ?? []).flatMap(({ name, sandbox }) =>
      sandbox ? [] : (findLink(call.host, name) ?? []),
    );
  const port = [farEndOf(call)].find(isPort) ?? reported().find(isPort);
  if (port !== undefined) return { ...ingress, port: port.name };
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot isolate "${call.env.ifname}": bridge "${ingress.bridge}" has no port that leads to it`,
    {
      details:
        'place this plugin after one that connects the pod to the bridge and reports the interface it created',
    },
  );
}

/** The host end of the pod's interface. */
function farEndOf(call: Call): Link | undefined {
  const inside = call.findContainerNetns() ? findLink(call.container, call.env.ifname) : undefined;
  const outside = inside && inside.peer > 0 ? findLink(call.host, inside.peer) : undefined;
  // An index is only meaningful in its own namespace, so the other end must point back to this one.
  return outside?.peer === inside?.index ? outside : undefined;
}
