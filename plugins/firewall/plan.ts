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
  readonly pods: readonly Ip[];
  /** The host interface that leads to the pod, and which peers may connect to it; absent when all may. */
  readonly ingress?: Ingress;
}

/** What a policy other than `open` needs. */
export interface Ingress {
  readonly bridge: string;
  readonly policy: Exclude<IngressPolicy, 'open'>;
  /** Port of the bridge that leads to the pod, for `isolated`; absent if there is no bridge. */
  readonly port?: string;
}

/**
 * All addresses of the result and, for a policy, the first host interface in it: a bridge, or the pod's own veth.
 * @throws CniError 7 for a policy without such an interface to apply it to
 */
export function planAccess(result: Result, policy: IngressPolicy): Omit<AccessPlan, 'others' | 'isNamed'> {
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
  return { pods, ingress: { bridge, policy } };
}
