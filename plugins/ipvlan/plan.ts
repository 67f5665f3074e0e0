// On which master is the device made, and whose addresses does it get?
import { loneInterface } from '../../src/attach/upper/master.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import type { IpvlanConf } from './config.ts';

/**
 * The master that an earlier plugin of the chain made: the only interface of its result. Undefined when a master is configured, or
 * when this plugin is the first.
 * @throws CniError 7 when the result has another number of interfaces
 */
export function chainedMaster({ master }: IpvlanConf, prevResult: Result | undefined): string | undefined {
  if (master || prevResult === undefined) return undefined;
  const lone = loneInterface(prevResult);
  if (lone) return lone.name;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot choose a master: the result of the plugin before has ${prevResult.interfaces?.length ?? 0} interfaces, expected one; set "master"`,
  );
}

/** Addresses, routes and resolvers that an earlier plugin of the chain obtained, if there is no IPAM plugin to ask. */
export function givenAddresses({ ipam }: IpvlanConf, prevResult: Result | undefined): Result | undefined {
  if (ipam?.type || !prevResult?.ips?.length) return undefined;
  const { ips, routes = [], dns } = prevResult;
  return { ips, routes, ...(dns ? { dns } : {}) };
}
