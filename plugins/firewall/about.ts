// What do tools know of firewall without running it?
import * as z from 'zod/mini';
import { aboutLink } from '../../src/cni/link-about.ts';
import { BACKENDS, FirewallConf, INGRESS_POLICIES, parseFirewallConf } from './config.ts';

/** The firewall link, as `catena validate` and the published schemas see it. */
export const about = aboutLink({
  kind: 'meta',
  capabilities: [],
  config: z.extend(FirewallConf, {
    // Podman's lists leave the choice to the link with an empty text.
    backend: z.optional(z.enum(['', ...BACKENDS])),
    ingressPolicy: z.optional(z.enum(['', ...INGRESS_POLICIES])),
  }),
  validate: conf => void parseFirewallConf(conf),
});
