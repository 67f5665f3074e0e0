// What can tools know about portmap without running it?
import * as z from 'zod/mini';
import { decode } from '../../src/cni/json.ts';
import { aboutPlugin } from '../../src/cni/plugin-about.ts';
import { PortMapping } from '../../src/cni/schemas.ts';
import { PortmapConf, parsePortMappings, validatePortmapConf } from './config.ts';
import { SHARED } from './iptables-rules.ts';

export const about = aboutPlugin({
  kind: 'meta',
  once: true,
  summary: 'forwards host ports to the pod',
  capabilities: ['portMappings'],
  config: z.extend(PortmapConf, {
    backend: z.optional(z.enum(['nftables', 'iptables'])),
    runtimeConfig: z.optional(z.looseObject({ portMappings: z.optional(z.array(PortMapping)) })),
  }),
  idleWithout: () => 'portMappings',
  validate: validatePortmapConf,
  sharedChains: Object.values(SHARED).map(name => ({ table: 'nat', name })),
  reachOf: () => ["other machines reach published ports of a container at the host's addresses"],
  effectsOf: request => ({ ports: parsePortMappings(decode(PortmapConf, request, 'request')) }),
});
