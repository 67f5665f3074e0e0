// What do tools know of bandwidth without running it?
import * as z from 'zod/mini';
import { aboutLink } from '../../src/cni/link-about.ts';
import { AMOUNT } from './amount.ts';
import { BandwidthConf, isUnlimited, limitsOf } from './config.ts';
import { findSubnets } from './subnets.ts';

/** Of what a text says, the published schema knows a pattern; `validate` has better words. */
const AmountText = z.string().register(z.globalRegistry, { pattern: AMOUNT.source });
const Amount = z.optional(z.union([z.int().check(z.minimum(0)), AmountText]));
const SubnetList = z.optional(z.array(z.string()));
const Limits = z.object({
  ingressRate: Amount,
  ingressBurst: Amount,
  egressRate: Amount,
  egressBurst: Amount,
  shapedSubnets: SubnetList,
  unshapedSubnets: SubnetList,
});

/** The bandwidth link, as `catena validate` and the published schemas see it. */
export const about = aboutLink({
  kind: 'meta',
  capabilities: ['bandwidth'],
  config: z.extend(BandwidthConf, {
    ...Limits.shape,
    runtimeConfig: z.optional(z.looseObject({ bandwidth: z.optional(Limits) })),
  }),
  idleWithout: conf => (isUnlimited(limitsOf(conf, conf)) ? 'bandwidth' : undefined),
  validate: (conf, entry) => {
    limitsOf(conf, entry);
    // The runtime may bring limits for which the lists hold.
    findSubnets([conf]);
  },
});
