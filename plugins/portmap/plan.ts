// Which ports are to be forwarded where, before the current state is considered?

import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import type { PortMapping } from '../../src/cni/schemas.ts';
import { type Cidr, FAMILIES, findCidr, findIp, type Ip, renderIp } from '../../src/net/ip.ts';

/** Protocols whose ports can be mapped, with their numbers (netinet/in.h, IPPROTO_*). */
export const PROTOCOLS = { tcp: 6, udp: 17, sctp: 132 } as const;

/** About as much as one transaction carries in a second. A kernel map numbers mappings with 16 bits in any case. */
export const MOST_MAPPINGS = 8192;

/** Name of a protocol whose ports can be mapped. */
export type Protocol = keyof typeof PROTOCOLS;

/** Name of a protocol by its number; undefined for one whose ports cannot be mapped. */
export function protocolName(number: number | undefined): Protocol | undefined {
  return (Object.keys(PROTOCOLS) as Protocol[]).find(name => PROTOCOLS[name] === number);
}

/** A port of the host that is forwarded to a pod. */
export interface HostPort {
  readonly protocol: Protocol;
  readonly port: number;
  /** The one host address it is taken on; absent for all addresses. */
  readonly ip?: Ip;
}

/** A host port and the port of the pod that it is forwarded to. */
export interface Forward extends HostPort {
  readonly containerPort: number;
}

/** All forwards of one IP version of an attachment. */
export interface FamilyPlan {
  readonly family: 4 | 6;
  /** The pod's address with the prefix length of its subnet. */
  readonly pod: Cidr;
  readonly forwards: readonly Forward[];
}

/**
 * Combines mappings and addresses: a mapping applies to each family that the pod has, unless its `hostIP` belongs to one family.
 * Families without an address or a mapping are left out.
 * @throws CniError 7 for mappings that cannot work
 */
export function planForwards(
  mappings: readonly PortMapping[],
  prevResult: Result,
  ifname: string,
): FamilyPlan[] {
  refuseTooMany(mappings);
  const forwards = mappings.map(parseMapping);
  return FAMILIES.flatMap(family => {
    const pod = findPodAddress(prevResult, ifname, family);
    const own = forwards
      .filter(it => it.families.includes(family) && !isLoopback6(it.forward))
      .map(({ forward }) => forward);
    return pod === undefined || own.length === 0 ? [] : { family, pod, forwards: withoutRepeats(own) };
  });
}

/** What is wrong with mappings that lead to no pod, human-readable: a runtime passes them to every network of a container. */
export function findIdle(mappings: readonly PortMapping[], prevResult: Result, ifname: string): string[] {
  const has = (family: 4 | 6) => findPodAddress(prevResult, ifname, family) !== undefined;
  if (!has(4) && !has(6)) return [];
  return mappings.map(parseMapping).flatMap(({ forward, families }) => {
    const why = isLoopback6(forward)
      ? 'the kernel routes nothing from ::1 to a pod; 127.0.0.1 and other addresses work'
      : families.some(has)
        ? undefined
        : `the pod has no IPv${families.join(' or IPv')} address`;
    return why === undefined ? [] : `Host port ${renderHostPort(forward)} is not forwarded: ${why}`;
  });
}

function isLoopback6({ ip }: HostPort): boolean {
  return ip?.family === 6 && ip.value === 1n;
}

/** The pod addresses that mappings forward to, as far as the result names them. */
export function podAddressesOf(prevResult: Result | undefined, ifname: string): Ip[] {
  return FAMILIES.flatMap(family => findPodAddress(prevResult ?? {}, ifname, family)?.ip ?? []);
}

/** `8080/tcp`, preceded by the address if there is one. */
export function renderHostPort({ protocol, port, ip }: HostPort): string {
  const address = ip === undefined ? '' : ip.family === 4 ? `${renderIp(ip)}:` : `[${renderIp(ip)}]:`;
  return `${address}${port}/${protocol}`;
}

function parseMapping(mapping: PortMapping): { forward: Forward; families: readonly (4 | 6)[] } {
  const protocol = (mapping.protocol || 'tcp').toLowerCase();
  if (!isProtocol(protocol)) {
    const known = Object.keys(PROTOCOLS).join(', ');
    throw invalid(mapping, `"protocol" must be one of ${known}, found "${mapping.protocol}"`);
  }
  const { hostPort: port, containerPort, hostIP } = mapping;
  const forward = { protocol, port, containerPort };
  if (!hostIP) return { forward, families: [4, 6] };
  const ip = findIp(hostIP);
  if (ip === undefined) throw invalid(mapping, `"hostIP" must be an IP address, found "${hostIP}"`);
  // 0.0.0.0 and :: stand for every address of their family.
  return { forward: ip.value === 0n ? forward : { ...forward, ip }, families: [ip.family] };
}

/** The first address that may belong to this interface; an address that names no interface may. */
function findPodAddress(result: Result, ifname: string, family: 4 | 6): Cidr | undefined {
  for (const { address, interface: index } of result.ips ?? []) {
    const own = index === undefined ? undefined : result.interfaces?.[index];
    if (own !== undefined && (own.name !== ifname || !own.sandbox)) continue;
    const cidr = findCidr(address);
    if (cidr?.ip.family === family) return cidr;
  }
  return undefined;
}

/** @throws CniError 7 */
function refuseTooMany(mappings: readonly PortMapping[]): void {
  if (mappings.length <= MOST_MAPPINGS) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot map ${mappings.length} host ports: one attachment has at most ${MOST_MAPPINGS} mappings`,
    { details: 'for more ports, give the pod an address that clients can reach directly' },
  );
}

/** Drops repeated mappings; two different mappings of one host port are an error. */
function withoutRepeats(forwards: readonly Forward[]): Forward[] {
  const kept = new Map<string, Forward>();
  for (const forward of forwards) {
    const key = renderHostPort(forward);
    const earlier = kept.get(key);
    if (earlier === undefined) kept.set(key, forward);
    else if (earlier.containerPort !== forward.containerPort) {
      throw new CniError(
        ErrorCode.invalidConfig,
        `Cannot map host port ${key} to container ports ` +
          `${earlier.containerPort} and ${forward.containerPort}: a host port can lead to one container port only`,
      );
    }
  }
  return [...kept.values()];
}

function isProtocol(text: string): text is Protocol {
  return Object.hasOwn(PROTOCOLS, text);
}

function invalid(mapping: PortMapping, problem: string): CniError {
  return new CniError(ErrorCode.invalidConfig, `Cannot map host port ${mapping.hostPort}: ${problem}`);
}
