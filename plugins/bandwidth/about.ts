// What do tools know of bandwidth without running it?
import * as z from 'zod/mini';
import { Bandwidth } from '../../src/cni/capabilities.ts';
import { aboutLink } from '../../src/cni/link-about.ts';
import { BandwidthConf, isUnlimited, limitsOf } from './config.ts';

/** The bandwidth link, as `catena validate` and the published schemas see it. */
export const about = aboutLink({
  kind: 'meta',
  capabilities: ['bandwidth'],
  config: z.extend(BandwidthConf, {
    ...Bandwidth.shape,
    runtimeConfig: z.optional(z.looseObject({ bandwidth: z.optional(Bandwidth) })),
  }),
  idleWithout: conf => (isUnlimited(limitsOf(conf, conf)) ? 'bandwidth' : undefined),
  validate: (conf, entry) => void limitsOf(conf, entry),
});
