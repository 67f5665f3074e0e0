// Which rules of iptables forward the ports of an attachment to its pod? They are the reference's, word for word.

import { type ChainOwner, chainOwnerIn } from '../../src/attach/owner.ts';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { ANYWHERE, IP_BITS, renderCidr, renderIp, subnetOf } from '../../src/net/ip.ts';
import { COMMENT_MAX_BYTES, quote } from '../../src/netlink/iptables/nat.ts';
import type { Table } from '../../src/netlink/nft/message.ts';
import type { FamilyPlan, Forward, Protocol } from './plan.ts';

/** Chains of the table "nat" that all containers share. */
export const SHARED = {
  dnat: 'CNI-HOSTPORT-DNAT',
  setMark: 'CNI-HOSTPORT-SETMARK',
  masquerade: 'CNI-HOSTPORT-MASQ',
  /** Used by releases before packet marks were introduced. */
  snat: 'CNI-HOSTPORT-SNAT',
} as const;

/** Hexadecimal digits that fit into a chain's name after its prefix. */
const HASH_DIGITS = 21;
const KEY_DIGITS = 15;

export function dnatChain(owner: ChainOwner): string {
  return `CNI-DN-${hash(owner)}`;
}

/** What an interface's own chain is named after, if another interface of the container already has {@link dnatChain}. */
export function soleOwner({ network, containerId, ifname }: AttachmentId): ChainOwner {
  // Container ids contain no slash, so the name is unique.
  return { network, containerId: `${containerId}/${ifname}` };
}

/** A short form of {@link dnatChain} for places limited to fifteen characters. */
export function chainKey(owner: ChainOwner): string {
  return hash(owner).slice(0, KEY_DIGITS);
}

/** The chain in which old releases masqueraded. */
export function snatChainOf(owner: ChainOwner): string {
  return `CNI-SN-${hash(owner)}`;
}

export function entryComment({ network, containerId }: ChainOwner): string {
  const words = `dnat name: "${network}" id: "${containerId}"`;
  return words.length <= COMMENT_MAX_BYTES ? words : `${words.slice(0, COMMENT_MAX_BYTES - 3)}...`;
}

/** The container that a comment names; undefined for other comments and for truncated ones. */
export function ownerIn(comment: string | undefined): ChainOwner | undefined {
  return chainOwnerIn(comment, 'dnat ');
}

/** The table of the reference's nf_tables backend. */
export function hostportTable(family: 4 | 6): Table {
  return { family: family === 4 ? 'ip' : 'ip6', name: 'cni_hostport' };
}

function hash({ network, containerId }: ChainOwner): string {
  const digits = new Bun.CryptoHasher('sha512').update(network + containerId).digest('hex');
  return digits.slice(0, HASH_DIGITS);
}

/** xt_multiport takes no more ports in one rule. */
const PORTS_PER_RULE = 15;

export interface IptablesOptions {
  readonly snat: boolean;
  readonly masqAll: boolean;
  /** Value of the mark, one bit. */
  readonly mark: number;
  /** A third-party chain that marks packets for masquerading; its owner must also masquerade them. */
  readonly externalSetMarkChain?: string | undefined;
  /** Further matches of the rules that jump to the container's chain. */
  readonly conditions: Readonly<Record<4 | 6, readonly string[]>>;
}

export interface SharedRule {
  readonly chain: string;
  readonly target: string;
  readonly mark?: number;
  /** Without chain and command. */
  readonly words: string;
  /** Where it is inserted when it is missing. */
  readonly place: 'first' | 'last';
}

/** The rules that all containers share, in the order in which the reference makes them. */
export function planSharedRules(options: IptablesOptions): SharedRule[] {
  const { mark } = options;
  const value = `0x${mark.toString(16)}/0x${mark.toString(16)}`;
  const marking: SharedRule[] = [
    {
      chain: SHARED.setMark,
      target: 'MARK',
      mark,
      words: `-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark ${value}`,
      place: 'last',
    },
    {
      chain: SHARED.masquerade,
      target: 'MASQUERADE',
      words: `-m mark --mark ${value} -j MASQUERADE`,
      place: 'last',
    },
    {
      chain: 'POSTROUTING',
      target: SHARED.masquerade,
      words: `-m comment --comment "CNI portfwd requiring masquerade" -j ${SHARED.masquerade}`,
      // Before the rules of containers that accept what is sent to their own subnet.
      place: 'first',
    },
  ];
  return [
    ...(isMarking(options) ? marking : []),
    ...['PREROUTING', 'OUTPUT'].map(chain => ({
      chain,
      target: SHARED.dnat,
      words: `-m addrtype --dst-type LOCAL -j ${SHARED.dnat}`,
      place: 'last' as const,
    })),
  ];
}

export function planSharedChains(options: IptablesOptions): string[] {
  return [SHARED.dnat, ...(isMarking(options) ? [SHARED.setMark, SHARED.masquerade] : [])];
}

/** The rules of one container and family, each beginning with its chain. */
export function planContainerRules(
  { family, pod, forwards }: FamilyPlan,
  owner: ChainOwner,
  options: IptablesOptions,
): string[] {
  const chain = dnatChain(owner);
  const { snat, masqAll } = options;
  const setMark = options.externalSetMarkChain ?? SHARED.setMark;
  const sources = [
    masqAll ? ANYWHERE[family] : renderCidr(subnetOf(pod)),
    ...(family === 4 && !masqAll ? ['127.0.0.1'] : []),
  ];
  return forwards.flatMap(({ protocol, port, ip, containerPort }) => {
    const match = `${chain} -p ${protocol} --dport ${port}${ip ? ` -d ${renderIp(ip)}` : ''}`;
    const to = family === 4 ? renderIp(pod.ip) : `[${renderIp(pod.ip)}]`;
    return [
      ...(snat ? sources.map(source => `${match} -s ${source} -j ${setMark}`) : []),
      `${match} -j DNAT --to-destination ${to}:${containerPort}`,
    ];
  });
}

/**
 * One rule for each protocol and group of ports jumps to the container's chain. Rules with conditions precede the others, so that
 * two containers can share a port.
 */
export function planEntryRules(
  { family, forwards }: FamilyPlan,
  owner: ChainOwner,
  options: IptablesOptions,
): SharedRule[] {
  const conditions = options.conditions[family];
  const comment = quote(entryComment(owner));
  const more = conditions.map(word => ` ${plainWord(word)}`).join('');
  const protocols = [...new Set(forwards.map(({ protocol }) => protocol))].sort();
  const target = dnatChain(owner);
  return protocols.flatMap(protocol =>
    groupsOfPorts(forwards, protocol).map(ports => ({
      chain: SHARED.dnat,
      target,
      words:
        `-m comment --comment ${comment} -m multiport -p ${protocol} ` +
        `--destination-ports ${ports.join(',')}${more} -j ${target}`,
      place: conditions.length ? ('first' as const) : ('last' as const),
    })),
  );
}

/** A word of a rule, quoted if iptables-restore needs that. */
export function plainWord(word: string): string {
  return /^[\w!./:,%@+=-]+$/.test(word) ? word : quote(word);
}

/**
 * The first rules of a container's chain, in addition to the reference's: a connection from ::1 cannot be routed to a pod, so the
 * ports of ::1 remain the host's own.
 */
export function planLoopbackRules(family: 4 | 6, owner: ChainOwner): string[] {
  return family === 6 ? [`${dnatChain(owner)} -d ::1/128 -j RETURN`] : [];
}

/** A rule of {@link planContainerRules} in the syntax of `iptables-save`. */
export function asSaved(rule: string, family: 4 | 6): string {
  const option = (flag: string) => new RegExp(` -${flag} (\\S+)`).exec(rule)?.[1];
  const address = (flag: 's' | 'd') => {
    const value = option(flag);
    if (value === undefined || value.endsWith('/0')) return '';
    return ` -${flag} ${value.includes('/') ? value : `${value}/${IP_BITS[family]}`}`;
  };
  const [chain = ''] = rule.split(' ', 1);
  const protocol = option('p');
  const target = rule.slice(rule.indexOf(' -j '));
  return `${chain}${address('s')}${address('d')} -p ${protocol} -m ${protocol} --dport ${option('-dport')}${target}`;
}

function groupsOfPorts(forwards: readonly Forward[], protocol: Protocol): number[][] {
  const own = forwards.filter(forward => forward.protocol === protocol).map(({ port }) => port);
  const ports = [...new Set(own)];
  const groups = Math.ceil(ports.length / PORTS_PER_RULE);
  return Array.from({ length: groups }, (_, i) => ports.slice(i * PORTS_PER_RULE, (i + 1) * PORTS_PER_RULE));
}

function isMarking({ snat, externalSetMarkChain }: IptablesOptions): boolean {
  return snat && externalSetMarkChain === undefined;
}
