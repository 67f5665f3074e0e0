// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { Dns, PluginConfig, Route } from '../../src/cni/schemas.ts';

/** The request as static sees it. */
export const StaticConf = z.extend(PluginConfig, {
  ipam: z.looseObject({
    type: z.optional(z.string()),
    /** Addresses to report, in this order; may be absent if the runtime supplies some. */
    addresses: z.optional(
      z.array(
        z.looseObject({
          /** Address with prefix length; host bits are kept. */
          address: z.string(),
          /** Gateway of the address; default: none. */
          gateway: z.optional(z.string()),
        }),
      ),
    ),
    /** Routes for the result, copied unchanged. */
    routes: z.optional(z.array(Route)),
    /** Resolver settings for the result, copied unchanged. */
    dns: z.optional(Dns),
  }),
  /** Arguments as older runtimes pass them. */
  args: z.optional(
    z.looseObject({
      cni: z.optional(
        z.looseObject({
          /** Addresses with prefix length, instead of the configured ones. */
          ips: z.optional(z.array(z.string())),
        }),
      ),
    }),
  ),
  runtimeConfig: z.optional(
    z.looseObject({
      /** Capability `ips`: instead of all others. One without prefix length has that of the configured address whose subnet contains it. */
      ips: z.optional(z.array(z.string())),
    }),
  ),
});
export type StaticConf = z.output<typeof StaticConf>;
