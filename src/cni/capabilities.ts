// What may the runtime pass in `runtimeConfig`, and in what shape?
import * as z from 'zod/mini';
import { optionalText } from './schema-parts.ts';

/** One port of the host forwarded into the container (CONVENTIONS.md "portMappings"). */
export const PortMapping = z.object({
  /** Port of the host, 1 to 65535. */
  hostPort: z.int().check(z.minimum(1), z.maximum(65535)),
  /** Port in the container, 1 to 65535. */
  containerPort: z.int().check(z.minimum(1), z.maximum(65535)),
  /** `tcp`, `udp` or `sctp`; tcp when absent. */
  protocol: optionalText,
  /** Address of the host on which the port is mapped; all when absent. */
  hostIP: optionalText,
});
export type PortMapping = z.output<typeof PortMapping>;

/** Rates in bits per second, bursts in bits (CONVENTIONS.md "bandwidth"). */
export const Bandwidth = z.object({
  /** Bits per second towards the container; 0 is unlimited. */
  ingressRate: z.optional(z.int().check(z.minimum(0))),
  /** Bits that may arrive at once before `ingressRate` holds. */
  ingressBurst: z.optional(z.int().check(z.minimum(0))),
  /** Bits per second from the container; 0 is unlimited. */
  egressRate: z.optional(z.int().check(z.minimum(0))),
  /** Bits that may leave at once before `egressRate` holds. */
  egressBurst: z.optional(z.int().check(z.minimum(0))),
});
export type Bandwidth = z.output<typeof Bandwidth>;

/** One range of addresses that an IPAM plugin may hand out (CONVENTIONS.md "ipRanges"). */
export const IpRange = z.object({
  /** The subnet in CIDR notation, without host bits. */
  subnet: z.string(),
  /** First address to hand out; the one after the network address when absent. */
  rangeStart: optionalText,
  /** Last address to hand out; the one before the broadcast address (IPv6: the last one) when absent. */
  rangeEnd: optionalText,
  /** Gateway, never handed out; the address after the network address when absent. */
  gateway: optionalText,
  /** What is not handed out: addresses, subnets, or first and last address joined by `-`. */
  exclude: z.optional(z.array(z.string())),
  /** Hands out these only, in the same notation, instead of all from `rangeStart` to `rangeEnd`. */
  addresses: z.optional(z.array(z.string())),
});
export type IpRange = z.output<typeof IpRange>;
