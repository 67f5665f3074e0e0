// What can tools know about firewall without running it?
import * as z from 'zod/mini';
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import {
  ADMIN_CHAIN,
  BACKENDS,
  CNI_FORWARD,
  FirewallConf,
  INGRESS_POLICIES,
  type IngressPolicy,
  parseFirewallConf,
  STAGES,
} from './config.ts';

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
  sharedChains: [CNI_FORWARD, ...STAGES, ADMIN_CHAIN].map(name => ({ table: 'filter', name })),
  effectsOf(request) {
    const { policy } = parseFirewallConf(decode(FirewallConf, request, 'request'));
    return { policies: POLICIES[policy] };
  },
  reachOf(request) {
    const { policy } = parseFirewallConf(decode(FirewallConf, request, 'request'));
    return REACH[policy];
  },
});

const POLICIES: Readonly<Record<IngressPolicy, readonly string[]>> = {
  open: ['has its forwarded traffic accepted'],
  'same-bridge': ['refuses connections from containers of other closed networks'],
  isolated: ['refuses connections from all other containers'],
};

const REACH: Readonly<Record<IngressPolicy, readonly string[]>> = {
  open: [],
  'same-bridge': ['containers of other networks with a closed policy cannot connect to those of this one'],
  isolated: ['no container can connect to another one of this network'],
};
