// How are the usual statements of a rule put together from expressions?
import { type Cidr, netmaskOf, networkOf } from '../../net/cidr.ts';
import { ipToBytes } from '../../net/ip.ts';
import { NFPROTO } from '../nfgenmsg.ts';
import { maskRegister } from './expr/bitwise.ts';
import { isEqual, isNotEqual } from './expr/cmp.ts';
import { IPS_DST_NAT, loadCt } from './expr/ct.ts';
import { ADDRESS_TYPES, loadAddressType } from './expr/fib.ts';
import { loadMeta } from './expr/meta.ts';
import { loadNetworkHeader, loadTransportHeader } from './expr/payload.ts';
import type { Expression } from './expr.ts';

/**
 * linux/netfilter/nf_tables.h, enum nft_registers: four registers of sixteen bytes from 1 on, whose quarters are
 * numbered from 8 on. The parts of a concatenation take as many quarters as they need. A quarter that begins a register
 * goes by the register's number, as in what the kernel answers.
 */
export const REG = { first: 1, quarter: (n: number) => (n % 4 === 0 ? 1 + n / 4 : 8 + n) } as const;

/** Where addresses are in the network header, in bytes. */
const HEADER = {
  4: { saddr: 12, daddr: 16, length: 4 },
  6: { saddr: 8, daddr: 24, length: 16 },
} as const;

/** Goes on for packets of one IP version; needed in `inet` chains. Same as: `meta nfproto ipv4|ipv6` */
export function matchFamily(family: 4 | 6): Expression[] {
  const value = NFPROTO[family === 4 ? 'ip' : 'ip6'];
  return [loadMeta(REG.first, 'nfproto'), isEqual(REG.first, Uint8Array.of(value))];
}

/** Reads the source or destination address. Same as: `ip|ip6 saddr|daddr` */
export function loadAddress(family: 4 | 6, which: 'saddr' | 'daddr', dreg: number): Expression {
  const header = HEADER[family];
  return loadNetworkHeader(dreg, header[which], header.length);
}

/** Goes on when the address lies in the subnet (or, with `not`, when it does not). Same as: `ip saddr [!=] <cidr>` */
export function matchAddress(
  which: 'saddr' | 'daddr',
  subnet: Cidr,
  options: { not?: boolean } = {},
): Expression[] {
  const value = ipToBytes(networkOf(subnet));
  return [
    loadAddress(subnet.ip.family, which, REG.first),
    maskRegister(REG.first, ipToBytes(netmaskOf(subnet))),
    options.not ? isNotEqual(REG.first, value) : isEqual(REG.first, value),
  ];
}

/** Reads the transport protocol. Same as: `meta l4proto` */
export function loadProtocol(dreg: number): Expression {
  return loadMeta(dreg, 'l4proto');
}

/** Reads the destination port of TCP, UDP and SCTP alike. Same as: `th dport` */
export function loadDestinationPort(dreg: number): Expression {
  return loadTransportHeader(dreg, 2, 2);
}

/** Goes on for packets to an address of this host. Same as: `fib daddr type local` */
export function matchLocalDestination(): Expression[] {
  return [loadAddressType(REG.first, 'daddr'), isEqual(REG.first, hostU32(ADDRESS_TYPES.local))];
}

/** Goes on for connections whose destination was translated. Same as: `ct status & dnat == dnat` */
export function matchTranslatedDestination(): Expression[] {
  const bit = hostU32(IPS_DST_NAT);
  return [loadCt(REG.first, 'status'), maskRegister(REG.first, bit), isEqual(REG.first, bit)];
}

/** Registers hold numbers that are no part of a packet in the byte order of the machine. */
export function hostU32(value: number): Uint8Array {
  return new Uint8Array(new Uint32Array([value]).buffer);
}
