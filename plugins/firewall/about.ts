// What can tools know about firewall without running it?
import * as z from 'zod/mini';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { BACKENDS, FirewallConf, INGRESS_POLICIES, parseFirewallConf } from './config.ts';

/** The firewall plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'meta',
  capabilities: [],
  config: z.extend(FirewallConf, {
    // Podman's conflists leave the choice to the plugin with an empty string.
    backend: z.optional(z.enum(['', ...BACKENDS])),
    ingressPolicy: z.optional(z.enum(['', ...INGRESS_POLICIES])),
  }),
  validate: conf => void parseFirewallConf(conf),
});
