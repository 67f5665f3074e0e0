// Are mapped host ports forwarded into the container?
import * as z from 'zod/mini';
import { PortMapping } from '../../cni/capabilities.ts';
import { decode } from '../../cni/json.ts';
import { findIp, type Ip, renderIp, sameIp } from '../../net/ip.ts';
import type { Netns } from '../../sys/netns.ts';
import { talkTcp, talkUdp } from '../traffic.ts';
import { containerIps, type Finding, finding, type Probe, placeIps, type Scene } from './probe.ts';

/**
 * Promised by: port mappings that a plugin received at run time. Each is tried from the outside, from the host and from the
 * container itself, for each family of which the container has an address.
 */
export function portProbes(scene: Scene): Probe[] {
  const families = [...new Set(containerIps(scene.container).map(ip => ip.family))];
  return mappingsOf(scene).flatMap(mapping =>
    families.flatMap(family => {
      const address = addressFor(scene, mapping, family);
      if (address === undefined) return [];
      const { protocol = 'tcp', hostPort, containerPort } = mapping;
      const port = `${protocol.toUpperCase()} port ${hostPort} of ${renderIp(address)} is forwarded to ${containerPort}`;
      return callersOf(scene).map(([from, client]) => ({
        what: `${port}, from ${from}`,
        run: () => call(scene, mapping, address, client),
      }));
    }),
  );
}

function mappingsOf({ plugins }: Scene): PortMapping[] {
  return plugins.flatMap(({ runtimeConfig }) => {
    const { portMappings } = runtimeConfig;
    return portMappings === undefined
      ? []
      : decode(z.array(PortMapping), portMappings, 'capability argument "portMappings"');
  });
}

/** The host's address that the mapping is for; undefined when this host does not have it, or it is of the other family. */
function addressFor({ lab }: Scene, { hostIP }: PortMapping, family: 4 | 6): Ip | undefined {
  const wanted = hostIP ? findIp(hostIP) : undefined;
  if (wanted === undefined || wanted.value === 0n) {
    return wanted && wanted.family !== family ? undefined : lab.hostAddress[family];
  }
  if (wanted.family !== family) return undefined;
  return placeIps(lab.host).some(own => sameIp(own, wanted)) ? wanted : undefined;
}

function callersOf({ lab, container }: Scene): readonly (readonly [from: string, netns: Netns])[] {
  return [
    ['outside', lab.outside.netns],
    ['the host', lab.host.netns],
    ['the container itself', container.place.netns],
  ];
}

function call({ container }: Scene, mapping: PortMapping, to: Ip, client: Netns): Finding {
  const { protocol = 'tcp', hostPort, containerPort } = mapping;
  const talk = { tcp: talkTcp, udp: talkUdp }[protocol.toLowerCase()];
  if (talk === undefined) return { outcome: 'skipped', seen: `no test for protocol ${protocol}` };
  const said = talk({ server: container.place.netns, port: containerPort, client, to, toPort: hostPort });
  return said.answered ? finding(true, `it saw ${renderIp(said.peer)}`) : finding(false, said.why);
}
