// Does an attachment ask for particular addresses, or for those that the one before it had?
import { CLAIM_ARG } from '../../src/cni/claim-arg.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { findCidr } from '../../src/net/cidr.ts';
import { findIp, type Ip } from '../../src/net/ip.ts';
import type { Call } from '../../src/plugin/define.ts';
import { keyOfClaim, keyOfPod, type Wish } from '../../src/pools/wish.ts';
import { argOf } from './choose-pool.ts';
import type { ClusterConf } from './config.ts';

/** The pods of a StatefulSet end in a number. Few others do, and keeping their addresses for a while does no harm. */
const ORDINAL = /-\d+$/;

/**
 * What the attachment wishes; undefined if any address will do.
 * @throws CniError 7 for a requested address that is none
 */
export function wishOf(
  call: Pick<Call, 'environment' | 'env' | 'network'>,
  conf: ClusterConf,
): Wish | undefined {
  const addresses = (conf.runtimeConfig?.ips ?? []).map(parse);
  const claim = conf.args?.cni?.[CLAIM_ARG];
  if (claim) return { keptFor: keyOfClaim(claim), keepS: undefined, addresses, isPromise: true };
  const [namespace, name] = [argOf(call, 'K8S_POD_NAMESPACE'), argOf(call, 'K8S_POD_NAME')];
  const keepS = conf.ipam.keep ?? 0;
  if (keepS > 0 && namespace && ORDINAL.test(name)) {
    const keptFor = keyOfPod(call.network, namespace, name, call.env.ifname);
    return { keptFor, keepS, addresses, isPromise: false };
  }
  return addresses.length ? { keptFor: undefined, keepS: undefined, addresses, isPromise: true } : undefined;
}

function parse(text: string): Ip {
  const ip = findIp(text) ?? findCidr(text)?.ip;
  if (ip) return ip;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot allocate ${JSON.stringify(text)} of "runtimeConfig.ips": it is not an address`,
  );
}
