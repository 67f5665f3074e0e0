// Who holds a host port already, among those whose ports iptables maps?
import { CniError } from '../../../src/cni/errors.ts';
import { findIp, type Ip, sameIp } from '../../../src/net/ip.ts';
import { saveTable } from '../../../src/netlink/iptables/save.ts';
import type { IptablesOptions } from '../iptables-rules.ts';
import {
  type FamilyPlan,
  type Forward,
  type HostPort,
  PROTOCOLS,
  type Protocol,
  renderHostPort,
} from '../plan.ts';
import { type ChainOwner, dnatChain } from '../reference-names.ts';
import { PortmapCode } from './claim.ts';

/** A port that leads to somebody's container. */
interface Held extends HostPort {
  readonly chain: string;
  /** Where it leads: `10.9.0.2:80`, `[fd00::2]:80`. */
  readonly to: string;
}

const FORWARD =
  /^(CNI-DN-\S+)(?: -d (\S+)\/\d+)? -p (\w+) -m \w+ --dport (\d+) -j DNAT --to-destination (\S+)$/;
/** Without further matches: with conditions of their own, containers may share a port. */
const ENTRY =
  /^CNI-HOSTPORT-DNAT -p \w+ -m comment --comment "dnat name: \\"(.*)\\" id: \\"(.*)\\"" -m multiport --dports [\d,]+ -j (\S+)$/;

/**
 * Refuses host ports that another container holds on an overlapping address. Reads the whole table, as iptables must: whoever
 * comes at the very same moment is not seen.
 * @throws CniError 100 naming the container
 */
export function refuseRivals(
  plans: readonly FamilyPlan[],
  owner: ChainOwner,
  { conditions }: IptablesOptions,
): void {
  for (const { family, pod, forwards } of plans) {
    if (conditions[family].length) continue;
    const { rules } = saveTable(family, 'nat');
    const held = rules.flatMap(findHeld).filter(({ chain }) => chain !== dnatChain(owner));
    for (const forward of forwards) {
      for (const rival of held.filter(one => excludes(one, forward))) {
        const holder = findHolder(rules, rival.chain);
        // Whoever had the pod's address before is gone; the container's other networks may be told of the same ports.
        if (holder === undefined || sameAddress(rival.to, pod.ip)) continue;
        if (holder.containerId === owner.containerId) continue;
        throw new CniError(
          PortmapCode.portTaken,
          `Cannot map host port ${renderHostPort(forward)}: container "${holder.containerId}" of network ` +
            `"${holder.network}" holds ${renderHostPort(rival)}`,
          { details: 'its DEL releases the port' },
        );
      }
    }
  }
}

function findHeld(rule: string): Held[] {
  const [, chain, address, protocol = '', port, to] = FORWARD.exec(rule) ?? [];
  if (chain === undefined || to === undefined || !Object.hasOwn(PROTOCOLS, protocol)) return [];
  const ip = address === undefined ? undefined : findIp(address);
  return [{ chain, to, protocol: protocol as Protocol, port: Number(port), ...(ip ? { ip } : {}) }];
}

function excludes(one: Held, other: Forward): boolean {
  if (one.protocol !== other.protocol || one.port !== other.port) return false;
  return one.ip === undefined || other.ip === undefined || sameIp(one.ip, other.ip);
}

/** The container that a chain without conditions belongs to. */
function findHolder(rules: readonly string[], chain: string): ChainOwner | undefined {
  for (const rule of rules) {
    const [, network, containerId, target] = ENTRY.exec(rule) ?? [];
    if (target === chain && network !== undefined && containerId !== undefined)
      return { network, containerId };
  }
  return undefined;
}

function sameAddress(to: string, address: Ip): boolean {
  const [, v6, v4] = /^(?:\[(.+)\]|([\d.]+)):\d+$/.exec(to) ?? [];
  const ip = findIp(v6 ?? v4 ?? '');
  return ip !== undefined && sameIp(ip, address);
}
