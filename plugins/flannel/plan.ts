// Which configuration does the delegate get?
import { defined } from '../../src/cni/defined.ts';
import type { JsonObject } from '../../src/cni/json.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import type { FlannelConf } from './config.ts';
import type { SubnetEnv } from './subnet-env.ts';

/** The configuration of the delegate plugin. Its own keys take precedence, except for those that only we know. */
export function planDelegate(conf: FlannelConf, env: SubnetEnv): JsonObject & { type: string } {
  const { delegate = {}, name, cniVersion, runtimeConfig } = conf;
  const type = typeof delegate.type === 'string' ? delegate.type : 'bridge';
  return {
    // If flanneld does not masquerade, the delegate must, or the pods could not reach the outside.
    ipMasq: !env.ipMasq,
    mtu: env.mtu,
    ...(type === 'bridge' ? { isGateway: true } : {}),
    ...delegate,
    type,
    name,
    ...(cniVersion ? { cniVersion } : {}),
    ...defined({ runtimeConfig }),
    ipam: planIpam(conf, env),
  };
}

/** Subnets replace configured ranges; networks follow configured routes. */
function planIpam({ ipam = {} }: FlannelConf, { subnets, networks }: SubnetEnv): JsonObject {
  return {
    ...ipam,
    type: ipam.type ?? 'host-local',
    ranges: subnets.map(subnet => [{ subnet: renderCidr(subnet) }]),
    routes: [...(ipam.routes ?? []), ...networks.map(network => ({ dst: renderCidr(network) }))],
  };
}
