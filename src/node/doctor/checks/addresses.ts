// Do the networks' addresses and MTUs fit the node's, are there addresses for the next containers, and do routes lead to other nodes?
import { TUNNELS } from '../../../between/names.ts';
import { type JsonObject, objectsIn } from '../../../cni/json.ts';
import { devicesOf, innerMtuOf, needsOf, rangesOf } from '../../../cni/plugin-about.ts';
import { findOwnerOf, type PoolUse, poolUsesOf } from '../../../ipam/range-use.ts';
import { asWord } from '../../../net/interface.ts';
import {
  type Cidr,
  cidrContains,
  cidrsOverlap,
  findCidr,
  type Ip,
  renderCidr,
  renderIp,
} from '../../../net/ip.ts';
import {
  type Check,
  groupBy,
  isHidden,
  type NodeView,
  type Problem,
  problem,
  type RoutedPod,
  type Seen,
  titleIn,
} from '../finding.ts';
import { goneIn, mendGone } from './state.ts';

/** If the node has another route to a container's address, packets to the container go elsewhere. */
export const subnets: Check = node => {
  const { facts, findAbout, routes } = node;
  // Records are root's alone: who has no overlap needs none.
  let found: ReturnType<typeof standingIn> | undefined;
  const standing = () => (found ??= standingIn(facts.attachments()));
  const isLed = (ip: Ip, by: Cidr) => cidrContains(by, ip) && routes.longestMatch(ip) <= by.prefix;
  const problems = facts.networks().networks.flatMap(({ list }) => {
    const devices = devicesOf(list, findAbout).map(({ name }) => name);
    // Containers on the link of a device of the node share its subnet, and are not reached by its routes.
    const isOnLink = list.plugins.some(({ type }) => findAbout(type)?.needsGatewayInSubnet);
    if (isOnLink && devices.length === 0) return [];
    // Ranges of one subnet overlap alike.
    const own = new Map(
      rangesOf(list, findAbout).map(({ range }) => [renderCidr(range.subnet), range.subnet]),
    );
    return [...own.values()].flatMap(subnet =>
      routes.all.flatMap(({ dst: other, device, isOfAddress }) => {
        const isApart = other.prefix === 0 || !cidrsOverlap(subnet, other);
        if (isApart || devices.includes(device)) return [];
        const attached = standing().filter(({ network }) => network === list.name);
        // The host's end of a container's pair has the route to it, and in IPv6 one to its gateway.
        const others = attached.filter(({ hostEnds }) => !hostEnds.includes(device));
        const led = others.flatMap(({ ips }) => ips.filter(ip => isLed(ip, other)));
        if (others.length < attached.length && led.length === 0) return [];
        const destination = renderCidr(other);
        const found = `subnet ${renderCidr(subnet)} of network "${list.name}" overlaps with the route to ${destination} on "${device}"`;
        if (led.length === 0 || other.prefix <= subnet.prefix) {
          const mend = `ip ${other.ip.family === 6 ? '-6 ' : ''}route show ${destination}; use another subnet for the network, unless the route is for it`;
          return problem('warning', found, mend);
        }
        const those = `${found}, which takes packets to ${led.map(renderIp).join(', ')} of its containers`;
        const holder = standing().find(({ hostEnds }) => hostEnds.includes(device));
        if (holder === undefined) {
          const mend = isOfAddress
            ? `use another subnet for network "${list.name}", and start its containers again: the node reaches its neighbours on "${device}" by this route`
            : `ip route del ${destination} dev ${asWord(device)}`;
          return problem('error', those, mend);
        }
        const [one] = others.filter(({ ips }) => ips.some(ip => isLed(ip, other)));
        const mend =
          one?.network === holder.network
            ? `start container "${titleIn(node, one.containerId)}" or "${titleIn(node, holder.containerId)}" again: both have the address`
            : `use another subnet for network "${list.name}" or "${holder.network}", and start their containers again`;
        return problem('error', those, mend);
      }),
    );
  });
  return problems.length ? problems : 'no subnet overlaps with a route of the node';
};

function standingIn({ attachments }: ReturnType<NodeView['facts']['attachments']>) {
  return attachments.flatMap(({ network, containerId, isGone, result }) =>
    isGone ? [] : [{ network, containerId, ips: addressesIn(result), hostEnds: hostEndsIn(result) }],
  );
}

/** A plugin that builds on a device of the node fails without it. */
export const needed: Check = ({ facts, findAbout, devices }) => {
  const names = new Set(devices.map(({ name }) => name));
  const problems = facts.networks().networks.flatMap(({ list }) =>
    needsOf(list, findAbout).flatMap(({ name, type, path }) => {
      const found = `network "${list.name}" needs device "${name}", which does not exist`;
      const mend = `create the device, or change "${path.join('.')}" in the "${type}" entry`;
      return names.has(name) ? [] : problem('error', found, mend);
    }),
  );
  return problems.length ? problems : 'every device that a network needs exists';
};

/** A container's packets must fit the MTU of the node's uplink. */
export const mtu: Check = node => {
  const { facts, findAbout, routes, devices, pods = [] } = node;
  const narrowed = pods.flatMap(one => narrowEnds(one, node));
  if (narrowed.length > 0) return narrowed;
  const uplinks = routes.all.filter(({ dst }) => dst.prefix === 0).map(({ device }) => device);
  // Packets to pods of other nodes may have to fit a tunnel.
  const ways = [...uplinks, ...Object.values(TUNNELS)];
  const smallest = devices.filter(({ name }) => ways.includes(name)).sort((a, b) => a.mtu - b.mtu)[0];
  if (smallest === undefined || uplinks.length === 0)
    return 'the node has no default route to compare the MTU with';
  const problems = facts.networks().networks.flatMap(({ list }) =>
    devicesOf(list, findAbout).flatMap(({ type: maker, name, mtu: made }) => {
      const inner = innerMtuOf(list, findAbout);
      const { type, mtu: size } = inner ?? { type: maker, mtu: made };
      const sends = `network "${list.name}" sends packets of up to ${size} bytes, but the MTU of`;
      const own = devices.find(device => device.name === name);
      // The devices of containers have no name that is known, and those without a master none either.
      const ports = name === undefined ? [] : devices.filter(({ master }) => master === name);
      ports.sort((a, b) => a.mtu - b.mtu);
      const [narrow, wide] = [ports.at(0), ports.at(-1)];
      if (own && size > own.mtu) {
        const found = `${sends} its ${own.kind || 'device'} "${own.name}" is ${own.mtu}`;
        // The kernel gives a bridge the least MTU of its ports: a lower one was set by hand.
        if (narrow && narrow.mtu >= size)
          return problem('warning', found, `ip link set dev ${asWord(own.name)} mtu ${size}`);
        return problem('warning', found, `set "mtu": ${inner ? own.mtu : '"auto"'} in the "${type}" entry`);
      }
      if (narrow && wide && narrow.mtu < wide.mtu) {
        const found = `the ports of bridge "${name}" of network "${list.name}" differ: the MTU of "${narrow.name}" is ${narrow.mtu}, that of "${wide.name}" ${wide.mtu}; packets that are too large for a port are lost`;
        const mend = `set "mtu": ${narrow.mtu} in the "${type}" entry and start the containers again, or "ip link set ${asWord(narrow.name)} mtu ${wide.mtu}"`;
        return problem('warning', found, mend);
      }
      if (size <= smallest.mtu) return [];
      const way = uplinks.includes(smallest.name) ? 'its uplink' : 'the tunnel to other nodes';
      const found = `${sends} ${way} "${smallest.name}" is ${smallest.mtu}`;
      return problem('warning', found, `set "mtu": ${smallest.mtu} in the "${type}" entry`);
    }),
  );
  return problems.length ? problems : `packets fit the MTU of "${smallest.name}" (${smallest.mtu} bytes)`;
};

/** A device that another program made narrower than the container's end loses what the container sends. */
function narrowEnds(
  { containerId, ifname, device, port = device, mtu: inside = 0 }: RoutedPod,
  node: NodeView,
): Problem[] {
  const outer = node.devices.find(({ name }) => name === port);
  if (outer === undefined || outer.kind !== 'veth' || outer.mtu >= inside) return [];
  const found = `the MTU of "${port}" is ${outer.mtu}, that of "${ifname}" of container "${titleIn(node, containerId)}" behind it ${inside}: larger packets are lost`;
  return [problem('error', found, `ip link set dev ${asWord(port)} mtu ${inside}`)];
}

function addressesIn(result: JsonObject | undefined): Ip[] {
  return objectsIn(result, 'ips').flatMap(one => findCidr(String(one.address))?.ip ?? []);
}

function hostEndsIn(result: JsonObject | undefined): unknown[] {
  return objectsIn(result, 'interfaces').flatMap(one => (one.sandbox ? [] : [one.name]));
}

/** Without such a route, pods reach the pods of a node from some nodes only, or from none. */
export async function between(node: NodeView): Promise<Seen> {
  const view = await node.between?.();
  if (view === undefined) return 'no daemon keeps routes to other nodes';
  const [first, ...others] = view.differences;
  const more = others.length ? `, and ${others.length} more` : '';
  const found = `pods of other nodes are not reached as planned: ${first}${more}`;
  const problems = [
    ...(first === undefined ? [] : [problem('error', found, SEE_DAEMON)]),
    ...view.problems.map(one => problem('warning', one, CORRECT_NODES)),
  ];
  return problems.length ? problems : `${view.routes} routes lead to ${view.nodes} other nodes`;
}

const SEE_DAEMON =
  'catena daemon --status  # a daemon with the setting "nodes" repairs this within a second, or logs why not';
const CORRECT_NODES = 'correct the nodes that the setting "nodes" names, or the addresses of this node';

/** Pools without a free address, or nearly so: gateways and what a list excludes are never free. */
export const pools: Check = node => {
  const { facts, findAbout } = node;
  const all = facts.networks().networks.flatMap(({ list }) => poolUsesOf(list, findAbout));
  const hidden = all.filter(({ leaseDir }) => isHidden(leaseDir));
  if (hidden.length)
    return hidden.map(({ network, leaseDir }) =>
      problem('unexamined', `addresses in use of network "${network}": this user may not read "${leaseDir}"`),
    );
  const tight = all.filter(({ used, size }) => used >= size * NEARLY_FULL);
  if (tight.length === 0) return `${all.length} address pools, all with free addresses`;
  return tight.map(pool => describe(pool, node));
};

const NEARLY_FULL = 0.9;

function describe({ network, ranges, used, size, leaseDir, held }: PoolUse, node: NodeView): Problem {
  const free = Math.max(0, size - used);
  const what =
    free === 0 ? 'is full: the next ADD fails;' : `has ${free} free address${free === 1 ? '' : 'es'};`;
  const owners = held.flatMap(address => findOwnerOf(leaseDir, address)?.containerId ?? []);
  const { attachments } = node.facts.attachments();
  const gone = attachments.filter(one => one.isGone && one.network === network);
  const lost = owners.filter(id => gone.some(({ containerId }) => containerId === id)).length;
  const mendable = goneIn(node).filter(
    ({ one }) => one.network === network && owners.includes(one.containerId),
  );
  const [most] = [...groupBy(owners, id => id).values()].sort((a, b) => b.length - a.length);
  const details = [
    `${used} of ${size} addresses are in use`,
    ...(lost > 0 ? [`${lost} of them by containers that are gone`] : []),
    ...(most?.[1] ? [`container "${titleIn(node, most[1])}" holds the most, ${most.length}`] : []),
  ];
  return problem(
    free === 0 ? 'error' : 'warning',
    `pool ${ranges.join(', ')} of network "${network}" ${what} ${details.join(', ')}`,
    mendGone(mendable) ?? `catena ipam ls ${network}`,
  );
}
