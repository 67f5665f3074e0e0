// What can a rule ask about the packet that passes it?

import type { Ip } from '../../net/ip.ts';
import type { RawTable } from '../../netlink/nft/ruleset.ts';
import type { Flow, Packet } from '../packet.ts';

/** linux/netfilter.h, enum nf_inet_hooks; bridges number theirs alike. */
export const HOOKS = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 } as const;

/** Name of a hook. */
export type HookName = keyof typeof HOOKS;

/** A device, as rules see it. */
export interface Device {
  readonly name: string;
  readonly index: number;
}

/** A packet at a hook. Rules may change the packet's mark and the flow. */
export interface Passage {
  packet: Packet;
  readonly flow: Flow;
  readonly hook: HookName;
  readonly iif?: Device | undefined;
  readonly oif?: Device | undefined;
  /** The packet is inside a bridge: `iif` and `oif` are ports. */
  readonly isBridged: boolean;
  /** Connection tracking has seen it. */
  isTracked: boolean;
  /** RTN_* of an address in this namespace; undefined if unknown. */
  addressType(ip: Ip): number | undefined;
  /** Main address of a device, for masquerading and redirecting. */
  addressOf(device: Device, family: 4 | 6): Ip | undefined;
}

/** A rule and its place. */
export interface RulePlace {
  readonly family: RawTable['family'];
  readonly table: string;
  readonly chain: string;
  /** Absent if it is the policy of the chain. */
  readonly handle?: bigint;
  /** The rule in nft's words, shortened. */
  readonly text: string;
}

/** A new end of a connection. */
export interface Translation {
  readonly side: 'src' | 'dst';
  readonly ip?: Ip | undefined;
  readonly port?: number | undefined;
}

/** What a rule decides if it matches. */
export type Effect =
  | { readonly kind: 'accept' | 'drop' | 'return' | 'unknown' }
  | { readonly kind: 'jump' | 'goto'; readonly chain: string }
  | { readonly kind: 'translate'; readonly to: Translation };
