// Do the networks' addresses and MTUs fit the node's?
import { rangesOf } from '../../ipam/range-use.ts';
import { cidrsOverlap, findCidr } from '../../net/cidr.ts';
import { type Check, fine } from '../finding.ts';

/** If the node has another route to a container's address, packets to the container go elsewhere. */
export const subnets: Check = {
  id: 'network.subnet-overlap',
  run({ facts, routes }) {
    const findings = facts.networks().networks.flatMap(({ list }) => {
      const bridges = list.plugins.map(({ conf }) =>
        typeof conf.bridge === 'string' ? conf.bridge : 'cni0',
      );
      return rangesOf(list).flatMap(({ subnet }) => {
        const own = findCidr(subnet);
        const others = routes.filter(({ destination, device }) => {
          const other = findCidr(destination);
          if (!own || !other || other.prefix === 0 || bridges.includes(device)) return false;
          return cidrsOverlap(own, other);
        });
        return others.map(({ destination, device }) => ({
          id: this.id,
          severity: 'warning' as const,
          found: `subnet ${subnet} of network "${list.name}" overlaps with the route to ${destination} by "${device}"`,
          mend: `ip route show ${destination}; give the network another subnet, unless the route is meant for it`,
        }));
      });
    });
    return findings.length ? findings : fine(this.id, 'no subnet overlaps with a route of the node');
  },
};

/** A container's packets must fit the MTU of the node's uplink. */
export const mtu: Check = {
  id: 'network.mtu',
  run({ facts, routes, devices }) {
    const uplinks = routes.filter(({ destination }) => /\/0$/.test(destination)).map(({ device }) => device);
    const smallest = devices.filter(({ name }) => uplinks.includes(name)).sort((a, b) => a.mtu - b.mtu)[0];
    if (smallest === undefined) return fine(this.id, 'the node has no default route to compare with');
    const findings = facts.networks().networks.flatMap(({ list }) =>
      list.plugins.flatMap(({ type, conf }) => {
        const size = typeof conf.mtu === 'number' && conf.mtu > 0 ? conf.mtu : 1500;
        const makesLinks = type === 'bridge' || type === 'ptp';
        if (!makesLinks || size <= smallest.mtu) return [];
        return [
          {
            id: this.id,
            severity: 'warning' as const,
            found: `network "${list.name}" sends packets of up to ${size} bytes, its way out "${smallest.name}" takes ${smallest.mtu}`,
            mend: `set "mtu": ${smallest.mtu} in the "${type}" entry`,
          },
        ];
      }),
    );
    return findings.length
      ? findings
      : fine(this.id, `packets fit through "${smallest.name}" (${smallest.mtu} bytes)`);
  },
};
