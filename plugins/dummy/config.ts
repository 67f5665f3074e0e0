// Which options does the dummy plugin take, and which values are invalid?
import * as z from 'zod/mini';
import { validatorOf } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';

/** Options of a `"type": "dummy"` entry; {@link validateDummyConf} refuses invalid values. */
export const DummyConf = z.extend(PluginConfig, {
  /** Hardware address, unless the runtime or the pod requests another one; chosen by the kernel if absent. */
  mac: z.optional(z.string()),
  /** MTU in bytes; 0 keeps the kernel's default. */
  mtu: z._default(z.int(), 0),
  args: z.optional(z.looseObject({ cni: z.optional(z.looseObject({ mac: z.optional(z.string()) })) })),
  runtimeConfig: z.optional(z.looseObject({ mac: z.optional(z.string()) })),
});
export type DummyConf = z.output<typeof DummyConf>;

/** linux/netdevice.h: dummy devices take any MTU that fits (dummy_setup sets `max_mtu` to 0, no limit). */
const MTU_MAX = 0x7fffffff;

/** Refuses what ADD cannot work with. */
export const validateDummyConf = validatorOf('dummy', ({ mtu }: DummyConf) =>
  mtu >= 0 && mtu <= MTU_MAX
    ? undefined
    : `"mtu" is ${mtu}, expected a number of bytes, or 0 for the default`,
);
