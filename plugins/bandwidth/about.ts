// What do tools know of bandwidth without running it?
import * as z from 'zod/mini';
import { aboutLink } from '../../src/cni/link-about.ts';
import { AMOUNT } from './amount.ts';
import { BandwidthConf, isUnlimited, limitsOf } from './config.ts';

/** Of what a text says, the published schema knows a pattern; `validate` has better words. */
const AmountText = z.string().register(z.globalRegistry, { pattern: AMOUNT.source });
const Amount = z.optional(z.union([z.int().check(z.minimum(0)), AmountText]));
const Amounts = z.object({
  ingressRate: Amount,
  ingressBurst: Amount,
  egressRate: Amount,
  egressBurst: Amount,
});

/** The bandwidth link, as `catena validate` and the published schemas see it. */
export const about = aboutLink({
  kind: 'meta',
  capabilities: ['bandwidth'],
  config: z.extend(BandwidthConf, {
    ...Amounts.shape,
    runtimeConfig: z.optional(z.looseObject({ bandwidth: z.optional(Amounts) })),
  }),
  idleWithout: conf => (isUnlimited(limitsOf(conf, conf)) ? 'bandwidth' : undefined),
  validate: (conf, entry) => void limitsOf(conf, entry),
});
