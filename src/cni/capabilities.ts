// What may the runtime pass in `runtimeConfig`, and in which shape?
import * as z from 'zod/mini';

/** One port of the host forwarded into the container (CONVENTIONS.md "portMappings"). */
export const PortMapping = z.object({
  hostPort: z.int().check(z.minimum(1), z.maximum(65535)),
  containerPort: z.int().check(z.minimum(1), z.maximum(65535)),
  protocol: z.optional(z.string()),
  hostIP: z.optional(z.string()),
});
export type PortMapping = z.output<typeof PortMapping>;

/** Rates in bits per second, bursts in bits (CONVENTIONS.md "bandwidth"). */
export const Bandwidth = z.object({
  ingressRate: z.optional(z.int().check(z.minimum(0))),
  ingressBurst: z.optional(z.int().check(z.minimum(0))),
  egressRate: z.optional(z.int().check(z.minimum(0))),
  egressBurst: z.optional(z.int().check(z.minimum(0))),
});
export type Bandwidth = z.output<typeof Bandwidth>;

/** One range of addresses that an IPAM plugin may hand out (CONVENTIONS.md "ipRanges"). */
export const IpRange = z.object({
  subnet: z.string(),
  rangeStart: z.optional(z.string()),
  rangeEnd: z.optional(z.string()),
  gateway: z.optional(z.string()),
});
export type IpRange = z.output<typeof IpRange>;
