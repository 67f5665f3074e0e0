// How does a plugin get addresses from its IPAM plugin, and what does it keep of the answer?
import type { PluginConfig } from '../cni/plugin-config.ts';
import type { Result, ResultDns } from '../cni/result.ts';
import type { Call } from '../plugin/define.ts';

/** Requests addresses from the IPAM plugin, if one is configured. They are released when ADD fails. */
export async function askIpam(call: Call<PluginConfig>): Promise<Result | undefined> {
  const type = call.conf.ipam?.type;
  if (!type) return undefined;
  const delegate = call.delegate(type);
  const result = await delegate.add();
  call.onFailure('release the addresses', () => delegate.del());
  return result;
}

/**
 * Resolver settings for the result. If the configuration has any member, even an empty list, its settings replace IPAM's
 * (reference behaviour).
 */
export function dnsOf({ dns }: PluginConfig, ipam: Result | undefined): ResultDns | undefined {
  const given = dns !== undefined && Boolean(dns.nameservers || dns.search || dns.options || dns.domain);
  return given ? dns : ipam?.dns;
}
