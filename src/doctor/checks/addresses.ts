// Do the networks' addresses and MTUs fit the node's?
import { TUNNELS } from '../../between/names.ts';
import { devicesOf, innerMtuOf, needsOf, rangesOf } from '../../cni/network-plugins.ts';
import { cidrsOverlap, findCidr, renderCidr } from '../../net/cidr.ts';
import { type Check, fine } from '../finding.ts';

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
        return others.map(({ destination, device }) => ({
          id: this.id,
          severity: 'warning' as const,
          found: `subnet ${renderCidr(subnet)} of network "${list.name}" overlaps with the route to ${destination} on "${device}"`,
          mend: `ip route show ${destination}; use another subnet for the network, unless the route is for it`,
        }));
      });
    });
    return findings.length ? findings : fine(this.id, 'no subnet overlaps with a route of the node');
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
  run({ facts, findAbout, routes, devices }) {
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
