// What does a rule of iptables' table "nat" say, whichever way the kernel keeps it?
import { type Cidr, renderCidr, subnetOf } from '../../net/cidr.ts';
import type { Ip } from '../../net/ip.ts';

/** Family by the number of its IP version, as everywhere. */
export type Family = 4 | 6;

/** An address that packets must have, or with `not` must not have. */
export interface AddressMatch {
  readonly cidr: Cidr;
  readonly not: boolean;
}

/** The parts of a rule that links look at. */
export interface NatRule {
  readonly chain: string;
  /** `ACCEPT`, `MASQUERADE`, …, or the chain that is jumped to; empty when we do not know it. */
  readonly target: string;
  readonly source?: AddressMatch | undefined;
  readonly destination?: AddressMatch | undefined;
  readonly comment?: string | undefined;
  /** What target MARK sets; all of it that is set is also the mask. */
  readonly mark?: number | undefined;
  /** IPPROTO_* */
  readonly protocol?: number | undefined;
  /** Destination ports, any of which packets must have. */
  readonly ports?: readonly number[] | undefined;
  /** Where target DNAT sends packets. */
  readonly to?: Ip | undefined;
  /** The rule has matches besides those that are told here. */
  readonly more?: boolean | undefined;
}

/**
 * The rule in the words of `iptables-save`, without the command in front of its chain.
 * Same as: `<chain> -s <source> -d <destination> -m comment --comment <comment> -j <target>`
 */
export function renderRule({ chain, target, source, destination, comment }: NatRule): string {
  return [
    chain,
    ...renderMatch('-s', source),
    ...renderMatch('-d', destination),
    ...(comment === undefined ? [] : ['-m comment --comment', quote(comment)]),
    `-j ${target}`,
  ].join(' ');
}

function renderMatch(flag: string, match: AddressMatch | undefined): string[] {
  return match ? [...(match.not ? ['!'] : []), flag, renderCidr(subnetOf(match.cidr))] : [];
}

/** A word for iptables-restore, which splits at blanks outside of double quotes; a backslash takes meaning from characters. */
export function quote(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}
