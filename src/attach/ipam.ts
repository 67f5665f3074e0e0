// How does a plugin get addresses from its IPAM plugin, and what does it keep of the answer?
import type { PluginConfig } from '../cni/plugin-config.ts';
import type { Result, ResultDns } from '../cni/result.ts';
import type { Call, Done } from '../plugin/define.ts';
import { tryAll } from '../plugin/try-all.ts';

/**
 * IPAM plugins that talk to a server through the interface that they address. DEL of any other comes after the interface is
 * deleted, since the address must not be reused while anything still has it; theirs comes before. The protocol has no word for
 * the difference, and this name is the same in the reference.
 */
const TALKS_THROUGH_INTERFACE: readonly (string | undefined)[] = ['dhcp'];

/** Whether the IPAM plugin needs the interface, up and connected, for its ADD and DEL. */
export function needsInterface({ ipam }: PluginConfig): boolean {
  return TALKS_THROUGH_INTERFACE.includes(ipam?.type);
}

/** Requests addresses from the IPAM plugin, if one is configured. They are released when ADD fails. */
export async function askIpam(call: Call<PluginConfig>): Promise<Result | undefined> {
  return prepareIpam(call)();
}

/**
 * For a plugin that makes the interface before it asks. To be called before it makes anything, so that a failed ADD releases the
 * addresses last; those that need the interface are released first.
 * @returns a function that requests the addresses, if an IPAM plugin is configured
 */
export function prepareIpam(call: Call<PluginConfig>): () => Promise<Result | undefined> {
  const type = call.conf.ipam?.type;
  if (!type) return async () => undefined;
  const delegate = call.delegate(type);
  let isGranted = false;
  const release = async (): Promise<void> => {
    if (isGranted) await delegate.del();
  };
  const early = !needsInterface(call.conf);
  if (early) call.onFailure('release the addresses', release);
  return async () => {
    const result = await delegate.add();
    isGranted = true;
    if (!early) call.onFailure('release the addresses', release);
    return result;
  };
}

/**
 * Deletes interfaces and releases their addresses, each at its time: see {@link needsInterface}. Continues after a failure.
 * @param verb of the IPAM plugin
 * @param remove deletes the interfaces, then does what it is given
 * @throws what failed
 */
export async function removeAndRelease(
  call: Call<PluginConfig>,
  verb: 'del' | 'gc',
  remove: (then: () => Done) => Done,
): Promise<void> {
  const type = call.conf.ipam?.type;
  if (!type) return remove(() => {});
  const release = (): Done => call.delegate(type)[verb]();
  if (!needsInterface(call.conf)) return remove(release);
  await tryAll([release, () => remove(() => {})]);
}

/**
 * Resolver settings for the result. If the configuration has any member, even an empty list, its settings replace IPAM's
 * (reference behaviour).
 */
export function dnsOf({ dns }: PluginConfig, ipam: Result | undefined): ResultDns | undefined {
  const given = dns !== undefined && Boolean(dns.nameservers || dns.search || dns.options || dns.domain);
  return given ? dns : ipam?.dns;
}
