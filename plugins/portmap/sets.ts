// Which sets and maps does port mapping keep in the kernel?
import type { Table } from '../../src/netlink/nft/message.ts';
import type { NftSet } from '../../src/netlink/nft/set.ts';

/** The table of our own that holds everything below. */
export const TABLE: Table = { family: 'inet', name: 'catena_portmap' };

/** Where ports are forwarded: for all attachments without conditions, or for those with the same conditions. */
export interface ForwardSets {
  /** Protocol and host port, on every address of the host, to address and port of the pod. */
  readonly wildcard: NftSet;
  /** The same for ports taken on one address of the host. */
  readonly specific: NftSet;
}

/** The sets and maps of one IP version. */
export interface FamilySets extends ForwardSets {
  /** Host address to the number of ports taken on it alone: the addresses that a wildcard claim has to check. */
  readonly hostips: NftSet;
  /** Protocol and host port that has mappings with conditions, to the chain that evaluates the conditions. */
  readonly conditional: NftSet;
  /** Protocol and host port to the number of such mappings. */
  readonly tally: NftSet;
  /** Attachment and number to one host port of it (0.0.0.0 or :: for all addresses) with subnet and address of the pod. */
  readonly claims: NftSet;
  /** Attachment and number to a claim that another network of its container holds, and to the port of the pod. */
  readonly heirs: NftSet;
  /** Attachment to its packet filter and the handle of its conditions; absent for nf_tables without conditions. */
  readonly means: NftSet;
  /** Handle of conditions (or empty), address, protocol and host port that iptables forwards. */
  readonly iptables: NftSet;
  /** Address of a pod to the attachment that owns it. */
  readonly pods: NftSet;
  /** Address of a pod to the chain that decides which sources are masqueraded. */
  readonly snat: NftSet;
  /** Subnet and address of pods: sources in that subnet need masquerading, otherwise replies would bypass the host. */
  readonly hairpin: NftSet;
}

/** The sets and maps, by IP version. */
export const SETS: Readonly<Record<4 | 6, FamilySets>> = { 4: familySets(4), 6: familySets(6) };

/**
 * Beginning of a chain's hash to the attachment whose iptables rules the chain holds, where the reference's name is ambiguous.
 */
export const CHAINS: NftSet = { table: TABLE, name: 'chains', key: ['ifname'], data: ['ifname'] };

/** Every set and map that always exists. */
export const FIXED_SETS: readonly NftSet[] = [...Object.values(SETS[4]), ...Object.values(SETS[6]), CHAINS];

/** Where ports are forwarded for attachments whose conditions have the handle. */
export function conditionalSets(family: 4 | 6, handle: string): ForwardSets {
  return forwardSets(family, `_${handle}`);
}

/** Finds the set of {@link conditionalSets} with this name. */
export function findConditionalSet(name: string): NftSet | undefined {
  const [, kind, family, handle] = /^(wildcard|specific)([46])_([0-9a-f]+)$/.exec(name) ?? [];
  if (handle === undefined) return undefined;
  return conditionalSets(family === '4' ? 4 : 6, handle)[kind as keyof ForwardSets];
}

function familySets(family: 4 | 6): FamilySets {
  const address = addressOf(family);
  const named = (name: string) => ({ table: TABLE, name: `${name}${family}` });
  return {
    ...forwardSets(family, ''),
    // nft has no type for a plain number; a mark is the closest.
    hostips: { ...named('hostips'), key: [address], data: ['mark'] },
    conditional: { ...named('conditional'), key: ['inet_proto', 'inet_service'], data: 'verdict' },
    tally: { ...named('tally'), key: ['inet_proto', 'inet_service'], data: ['mark'] },
    claims: {
      ...named('claims'),
      // The second part numbers the claims of an attachment.
      key: ['ifname', 'inet_service'],
      data: [address, 'inet_proto', 'inet_service', address, address],
    },
    heirs: {
      ...named('heirs'),
      key: ['ifname', 'inet_service'],
      data: [address, 'inet_proto', 'inet_service', address, 'inet_service'],
    },
    means: { ...named('means'), key: ['ifname'], data: ['ifname', 'ifname'] },
    iptables: { ...named('iptables'), key: ['ifname', address, 'inet_proto', 'inet_service'] },
    pods: { ...named('pods'), key: [address], data: ['ifname'] },
    snat: { ...named('snat'), key: [address], data: 'verdict' },
    hairpin: { ...named('hairpin'), key: [address, address] },
  };
}

function forwardSets(family: 4 | 6, suffix: string): ForwardSets {
  const address = addressOf(family);
  const named = (name: string) => ({ table: TABLE, name: `${name}${family}${suffix}` });
  const data = [address, 'inet_service'] as const;
  return {
    wildcard: { ...named('wildcard'), key: ['inet_proto', 'inet_service'], data },
    specific: { ...named('specific'), key: [address, 'inet_proto', 'inet_service'], data },
  };
}

function addressOf(family: 4 | 6): 'ipv4_addr' | 'ipv6_addr' {
  return family === 4 ? 'ipv4_addr' : 'ipv6_addr';
}
