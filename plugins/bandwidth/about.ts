// What can tools know about bandwidth without running it?
import * as z from 'zod/mini';
import { decode, defined } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { AMOUNT, BandwidthConf, findSubnets, isUnlimited, limitsOf } from './config.ts';

/** The published schema describes such strings by a pattern; `validate` has better error messages. */
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

export const about = aboutPlugin({
  kind: 'meta',
  once: true,
  summary: 'limits the rate of traffic to and from the container',
  capabilities: ['bandwidth'],
  config: z.extend(BandwidthConf, {
    ...Limits.shape,
    runtimeConfig: z.optional(z.looseObject({ bandwidth: z.optional(Limits) })),
  }),
  idleWithout: conf => (isUnlimited(limitsOf(conf, conf)) ? 'bandwidth' : undefined),
  validate: (conf, entry) => {
    limitsOf(conf, entry);
    // The runtime may pass limits to which the lists apply.
    findSubnets([conf]);
  },
  effectsOf(request) {
    const { ingress, egress, subnets } = limitsOf(decode(BandwidthConf, request, 'request'), request);
    return {
      rates: defined({ ingressBits: ingress?.rateBits, egressBits: egress?.rateBits }),
      policies: subnets === undefined ? [] : ['is limited on the way from and to some subnets only'],
    };
  },
});
