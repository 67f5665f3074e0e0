// What does a rule of iptables' table "nat" contain, independent of the kernel's representation?
import { type Cidr, renderCidr, subnetOf } from '../../net/cidr.ts';
import type { Ip } from '../../net/ip.ts';

/** An address that packets must have, or with `not`, must not have. */
export interface AddressMatch {
  readonly cidr: Cidr;
  readonly not: boolean;
}

/** The parts of a rule that plugins inspect. */
export interface NatRule {
  readonly chain: string;
  /** `ACCEPT`, `MASQUERADE`, …, or the chain that is jumped to; empty for an unknown target. */
  readonly target: string;
  readonly source?: AddressMatch | undefined;
  readonly destination?: AddressMatch | undefined;
  readonly comment?: string | undefined;
  /** The value that target MARK sets; the mask is the same value. */
  readonly mark?: number | undefined;
  /** IPPROTO_* */
  readonly protocol?: number | undefined;
  /** Destination ports, any of which matches. */
  readonly ports?: readonly number[] | undefined;
  /** Destination of target DNAT. */
  readonly to?: Ip | undefined;
  /** The rule has matches other than those listed here. */
  readonly more?: boolean | undefined;
}

/**
 * The rule in `iptables-save` syntax, without the command before its chain.
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

/** The length of the prefix that a mask covers; undefined for a mask that covers no prefix. */
export function prefixOf(mask: Uint8Array): number | undefined {
  const bits = Array.from(mask, byte => byte.toString(2).padStart(8, '0')).join('');
  const prefix = bits.indexOf('0') < 0 ? bits.length : bits.indexOf('0');
  return bits.includes('1', prefix) ? undefined : prefix;
}

function renderMatch(flag: string, match: AddressMatch | undefined): string[] {
  return match ? [...(match.not ? ['!'] : []), flag, renderCidr(subnetOf(match.cidr))] : [];
}

/** Quotes a word for iptables-restore, which splits at blanks outside double quotes and uses backslash as an escape. */
export function quote(text: string): string {
  return `"${text.replace(/["\\]/g, '\\$&')}"`;
}
