// What can tools know about firewall without running it?
import * as z from 'zod/mini';
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { BACKENDS, FirewallConf, INGRESS_POLICIES, type IngressPolicy, parseFirewallConf } from './config.ts';
import { CNI_FORWARD, STAGES } from './iptables-rules.ts';

/** The firewall plugin, as `catena validate` and the published schemas see it. */
export const about = aboutPlugin({
  kind: 'meta',
  summary: 'accepts forwarded traffic to and from the pod and restricts which peers may connect to it',
  capabilities: [],
  config: z.extend(FirewallConf, {
    // Podman's conflists leave the choice to the plugin with an empty string.
    backend: z.optional(z.enum(['', ...BACKENDS])),
    ingressPolicy: z.optional(z.enum(['', ...INGRESS_POLICIES])),
  }),
  validate: conf => void parseFirewallConf(conf),
  sharedChains: [CNI_FORWARD, ...STAGES, 'CNI-ADMIN'].map(name => ({ table: 'filter', name })),
  effectsOf(request) {
    const { policy } = parseFirewallConf(decode(FirewallConf, request, 'request'));
    return { policies: POLICIES[policy] };
  },
});

const POLICIES: Readonly<Record<IngressPolicy, readonly string[]>> = {
  open: ['forwarded traffic from and to it is accepted'],
  'same-bridge': ['containers of other closed networks cannot connect to it'],
  isolated: ['no other container can connect to it'],
};
