// Whom is the firewall to let through, before anyone looks at what is there?
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { findCidr } from '../../src/net/cidr.ts';
import { type Ip, sameIp } from '../../src/net/ip.ts';
import type { IngressPolicy, Other } from './config.ts';

/** What an attachment needs. */
export interface AccessPlan {
  /** Packet filters of the host that are told as well. */
  readonly others: readonly Other[];
  readonly pods: readonly Ip[];
  /** The interface of the host behind which the pod is, and who may come to it; absent when everybody may. */
  readonly ingress?: { readonly bridge: string; readonly policy: Exclude<IngressPolicy, 'open'> };
}

/**
 * All addresses of the result, and for a policy the interface of the host that comes first in it: a bridge, or the pod's
 * own veth.
 * @throws CniError 7 for a policy that has no such interface to work with
 */
export function planAccess(result: Result, policy: IngressPolicy): Omit<AccessPlan, 'others'> {
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
      `Cannot use "ingressPolicy": "${policy}": no interface in "prevResult" is on the host; put this link ` +
        'behind one that makes a bridge or a veth pair',
    );
  }
  return { pods, ingress: { bridge, policy } };
}
