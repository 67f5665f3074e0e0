// Which traffic is the firewall to accept, before the current state is considered?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { findCidr } from '../../src/net/cidr.ts';
import { type Ip, sameIp } from '../../src/net/ip.ts';
import type { IngressPolicy, Other } from './config.ts';

/** What an attachment needs. */
export interface AccessPlan {
  /** Packet filters of the host that are informed as well. */
  readonly others: readonly Other[];
  /**
   * Whether the configuration names them. If so, they also get the reference's rules for policies, which apply to whole bridges.
   * Otherwise they only accept packets, and nf_tables enforces the policy of each pod.
   */
  readonly isNamed: boolean;
  /** They get the reference's rules alone. */
  readonly asReference?: boolean;
  readonly pods: readonly Ip[];
  /** How the host reaches the pod, and which peers may connect to it; absent when all may. */
  readonly ingress?: Ingress;
}

/** What a policy other than `open` needs. */
export interface Ingress {
  /** The first host interface of the result: a bridge, or the pod's own veth. */
  readonly bridge: string;
  /** The device by which the host routes to the pod, which its routed packets come from: the bridge, or its port of a VLAN. */
  readonly home: string;
  readonly policy: Exclude<IngressPolicy, 'open'>;
  /** Port of the bridge that leads to the pod, for `isolated`; absent if there is no bridge. */
  readonly port?: string;
}

/**
 * All addresses of the result and, for a policy, the first host interface in it: a bridge, or the pod's own veth.
 * @throws CniError 7 for a policy without such an interface to apply it to
 */
export function planAccess(result: Result, policy: IngressPolicy): Pick<AccessPlan, 'pods' | 'ingress'> {
  const pods: Ip[] = [];
  for (const { address } of result.ips ?? []) {
    const ip = findCidr(address)?.ip;
    if (ip && !pods.some(one => sameIp(one, ip))) pods.push(ip);
  }
  if (policy === 'open') return { pods };
  const bridge = result.interfaces?.find(({ sandbox }) => !sandbox)?.name;
  if (bridge === undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use "ingressPolicy": "${policy}": no interface in "prevResult" is on the host; place this plugin ` +
        'after one that creates a bridge or a veth pair',
    );
  }
  return { pods, ingress: { bridge, home: bridge, policy } };
}
