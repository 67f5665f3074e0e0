// Do the networks' addresses and MTUs fit the node's?
import { TUNNELS } from '../../between/names.ts';
import { isNamespaceGone } from '../../chain/records/gone.ts';
import { isObject, type JsonObject } from '../../cni/json.ts';
import { devicesOf, innerMtuOf, needsOf, rangesOf } from '../../cni/network-plugins.ts';
import { cidrContains, cidrsOverlap, findCidr, renderCidr } from '../../net/cidr.ts';
import { type Ip, renderIp } from '../../net/ip.ts';
import { type Check, type Finding, fine, type NodeView } from '../finding.ts';
import type { RoutedPod } from '../routed-pod.ts';

/** If the node has another route to a container's address, packets to the container go elsewhere. */
export const subnets: Check = {
  id: 'network.subnet-overlap',
  run({ facts, findAbout, routes }) {
    const findings = facts.networks().networks.flatMap(({ list }) => {
      const devices = devicesOf(list, findAbout).map(({ name }) => name);
      return rangesOf(list, findAbout).flatMap(({ range: { subnet } }) => {
        const others = routes.filter(({ destination, device }) => {
          const other = findCidr(destination);
          if (!other || other.prefix === 0 || devices.includes(device)) return false;
          return cidrsOverlap(subnet, other);
        });
        return others.map(({ destination, device }): Finding => {
          const other = findCidr(destination);
          const led = attached(list.name).filter(ip => other && cidrContains(other, ip));
          const found = `subnet ${renderCidr(subnet)} of network "${list.name}" overlaps with the route to ${destination} on "${device}"`;
          if (led.length === 0 || (other?.prefix ?? 0) <= subnet.prefix) {
            const mend = `ip route show ${destination}; use another subnet for the network, unless the route is for it`;
            return { id: this.id, severity: 'warning', found, mend };
          }
          const those = `${found}, which takes packets to ${led.map(renderIp).join(', ')} of its containers`;
          const mend = `ip route del ${destination} dev ${device}`;
          return { id: this.id, severity: 'error', found: those, mend };
        });
      });
    });
    return findings.length ? findings : fine(this.id, 'no subnet overlaps with a route of the node');

    function attached(network: string): Ip[] {
      const { attachments } = facts.attachments();
      return attachments.flatMap(one =>
        one.known.network === network && !isNamespaceGone(one) ? addressesIn(one.known.result) : [],
      );
    }
  },
};

/** A plugin that builds on a device of the node fails without it. */
export const needed: Check = {
  id: 'network.device',
  run({ facts, findAbout, devices }) {
    const names = new Set(devices.map(({ name }) => name));
    const findings = facts.networks().networks.flatMap(({ list }) =>
      needsOf(list, findAbout)
        .filter(({ name }) => !names.has(name))
        .map(({ name, type, path }) => ({
          id: this.id,
          severity: 'error' as const,
          found: `network "${list.name}" needs device "${name}", which does not exist`,
          mend: `create the device, or change "${path.join('.')}" in the "${type}" entry`,
        })),
    );
    return findings.length ? findings : fine(this.id, 'every device that a network needs exists');
  },
};

/** A container's packets must fit the MTU of the node's uplink. */
export const mtu: Check = {
  id: 'network.mtu',
  run({ facts, findAbout, routes, devices, pods = [] }) {
    const narrowed = pods.flatMap(one => narrowEnds(one, devices, this.id));
    if (narrowed.length > 0) return narrowed;
    const uplinks = routes.filter(({ destination }) => /\/0$/.test(destination)).map(({ device }) => device);
    // Packets to pods of other nodes may have to fit a tunnel.
    const ways = [...uplinks, ...Object.values(TUNNELS)];
    const smallest = devices.filter(({ name }) => ways.includes(name)).sort((a, b) => a.mtu - b.mtu)[0];
    if (smallest === undefined || uplinks.length === 0)
      return fine(this.id, 'the node has no default route to compare the MTU with');
    const findings = facts.networks().networks.flatMap(({ list }) =>
      devicesOf(list, findAbout).flatMap(({ type: maker, name, mtu: made }) => {
        const inner = innerMtuOf(list, findAbout);
        const { type, mtu: size } = inner ?? { type: maker, mtu: made };
        const own = devices.find(device => device.name === name);
        if (own && size > own.mtu) {
          return [
            {
              id: this.id,
              severity: 'warning' as const,
              found: `network "${list.name}" sends packets of up to ${size} bytes, but the MTU of its ${own.kind || 'device'} "${own.name}" is ${own.mtu}`,
              mend: `set "mtu": ${inner ? own.mtu : '"auto"'} in the "${type}" entry`,
            },
          ];
        }
        const ports = devices.filter(({ master }) => master === name).sort((a, b) => a.mtu - b.mtu);
        const [narrow, wide] = [ports.at(0), ports.at(-1)];
        if (narrow && wide && narrow.mtu < wide.mtu) {
          return [
            {
              id: this.id,
              severity: 'warning' as const,
              found: `the ports of bridge "${name}" of network "${list.name}" differ: the MTU of "${narrow.name}" is ${narrow.mtu}, that of "${wide.name}" ${wide.mtu}; packets that are too large for a port are lost`,
              mend: `set "mtu": ${narrow.mtu} in the "${type}" entry and start the containers again, or "ip link set ${narrow.name} mtu ${wide.mtu}"`,
            },
          ];
        }
        if (size <= smallest.mtu) return [];
        return [
          {
            id: this.id,
            severity: 'warning' as const,
            found: `network "${list.name}" sends packets of up to ${size} bytes, but the MTU of ${uplinks.includes(smallest.name) ? 'its uplink' : 'the tunnel to other nodes'} "${smallest.name}" is ${smallest.mtu}`,
            mend: `set "mtu": ${smallest.mtu} in the "${type}" entry`,
          },
        ];
      }),
    );
    return findings.length
      ? findings
      : fine(this.id, `packets fit the MTU of "${smallest.name}" (${smallest.mtu} bytes)`);
  },
};

/** A device that another program made narrower than the container's end loses what the container sends. */
function narrowEnds(
  { containerId, ifname, device, port = device, mtu: inside = 0 }: RoutedPod,
  devices: NodeView['devices'],
  id: string,
): Finding[] {
  const outer = devices.find(({ name }) => name === port);
  if (outer === undefined || outer.kind !== 'veth' || outer.mtu >= inside) return [];
  const found = `the MTU of "${port}" is ${outer.mtu}, that of "${ifname}" of container "${containerId}" behind it ${inside}: larger packets are lost`;
  return [{ id, severity: 'error', found, mend: `ip link set dev ${port} mtu ${inside}` }];
}

function addressesIn({ ips }: JsonObject = {}): Ip[] {
  if (!Array.isArray(ips)) return [];
  return ips.flatMap(one => (isObject(one) && findCidr(String(one.address))?.ip) || []);
}
