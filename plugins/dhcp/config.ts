// Which options does the dhcp plugin take, and which combinations are invalid?
import * as z from 'zod/mini';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { findIp, renderIp } from '../../src/net/ip.ts';
import { Code } from './codec.ts';

/**
 * Seconds that ADD asks before it gives up, as with the reference; a runtime waits longer. A port of a bridge with spanning tree passes
 * nothing for twice its forward delay, 15 seconds by default.
 */
export const DEFAULT_TIMEOUT_S = 62;
const MAX_TIMEOUT_S = 600;
const MAX_VALUE_BYTES = 255;

/** What DEL needs: nothing but the lease on disk. */
export const ReleaseConf = z.extend(PluginConfig, { ipam: z.optional(z.looseObject({})) });

/** Options of the `ipam` object of an entry whose `ipam.type` is `dhcp`. The README's table repeats these descriptions. */
export const DhcpConf = z.extend(PluginConfig, {
  ipam: z.looseObject({
    type: z.optional(z.string()),
    /** Options to send: `{"option": "host-name", "value": "web"}`, or `"fromArg"` with a key of `CNI_ARGS`, which wins. */
    provide: z.optional(
      z.array(
        z.looseObject({
          option: z.string(),
          value: z.optional(z.string()),
          fromArg: z.optional(z.string()),
        }),
      ),
    ),
    /** Further options to ask for: `{"option": "42"}`; with `"skipDefault": true` in any entry, which needs no option, only those. */
    request: z.optional(
      z.array(z.looseObject({ option: z.optional(z.string()), skipDefault: z.optional(z.boolean()) })),
    ),
    /**
     * How to get IPv6 addresses: `dhcp` (a lease by DHCPv6), `slaac` (formed from router advertisements), `stateless` (the same, with
     * resolvers by DHCPv6). Default: none is asked for.
     */
    ipv6: z.optional(z.enum(['dhcp', 'slaac', 'stateless'])),
    /** Obtain an IPv4 lease. Default true. */
    ipv4: z.optional(z.boolean()),
    /** With `"ipv6": "dhcp"`: take the address from the first answer of a server that offers that, in one exchange. Default false. */
    rapidCommit: z.optional(z.boolean()),
    /** Metric of all routes. */
    priority: z.optional(z.int()),
    /** Addresses of servers whose answers count, for IPv6 the link-local ones; default: any server's of that family. */
    servers: z.optional(z.array(z.string())),
    /** Probe for a granted address, and decline it if another host has it. Default true. */
    detectConflicts: z.optional(z.boolean()),
    /** Seconds that ADD asks before it gives up. Default 62. */
    timeout: z.optional(z.int()),
    /** Socket of the reference's daemon; ignored, since `catena daemon` keeps the leases. */
    daemonSocketPath: z.optional(z.string()),
  }),
});
export type DhcpConf = z.output<typeof DhcpConf>;

/** Names of options, as in the reference. */
const OPTION_NAMES: Readonly<Record<string, number>> = {
  'dhcp-client-identifier': Code.clientId,
  'subnet-mask': Code.subnetMask,
  routers: Code.routers,
  'host-name': Code.hostName,
  'user-class': Code.userClass,
  'vendor-class-identifier': Code.vendorClass,
};

/** Options by which the protocol itself works. */
const OWN_CODES: readonly number[] = [
  ...[Code.pad, Code.requestedAddress, Code.overload, Code.messageType, Code.serverId, Code.parameterList],
  ...[Code.maxMessageSize, Code.end],
];

/** What is asked for unless `skipDefault` says otherwise. Classless routes come before routers (RFC 3442). */
const DEFAULT_REQUESTS: readonly number[] = [
  ...[Code.subnetMask, Code.classlessRoutes, Code.routers, Code.staticRoutes],
  ...[Code.nameservers, Code.domainName, Code.domainSearch, Code.interfaceMtu],
  ...[Code.leaseTime, Code.renewalTime, Code.rebindingTime],
];

/** Which options are sent to servers, and which are asked for. */
export interface Wishes {
  readonly provide: ReadonlyMap<number, Uint8Array>;
  readonly request: readonly number[];
}

/**
 * Reads the options to send and to ask for.
 * @param args `CNI_ARGS`
 * @throws CniError 7
 */
export function wishesOf({ ipam }: DhcpConf, args: readonly (readonly [string, string])[]): Wishes {
  const provide = new Map<number, Uint8Array>();
  for (const { option, value, fromArg } of ipam.provide ?? []) {
    const code = codeOf(option);
    if (OWN_CODES.includes(code))
      throw invalid(`"provide" names option ${code}, which the protocol sets itself`);
    const given = fromArg ? args.find(([key]) => key === fromArg)?.[1] : undefined;
    const text = given || value;
    if (!text) continue;
    const bytes = new TextEncoder().encode(text);
    if (bytes.length > MAX_VALUE_BYTES)
      throw invalid(`the value of "${option}" has ${bytes.length} bytes, at most ${MAX_VALUE_BYTES} fit`);
    provide.set(code, bytes);
  }
  const named = (ipam.request ?? []).flatMap(({ option }) => (option ? codeOf(option) : []));
  const skips = ipam.request?.some(({ skipDefault }) => skipDefault) ?? false;
  return { provide, request: [...new Set([...(skips ? [] : DEFAULT_REQUESTS), ...named])] };
}

/** @throws CniError 7 */
export function validateDhcpConf(conf: DhcpConf): void {
  const { timeout, priority, servers } = conf.ipam;
  if (timeout !== undefined && (timeout < 1 || timeout > MAX_TIMEOUT_S))
    throw invalid(`"timeout" is ${timeout}, expected 1 to ${MAX_TIMEOUT_S} seconds`);
  if (priority !== undefined && (priority < 0 || priority > 0xffffffff))
    throw invalid(`"priority" is ${priority}, expected 0 to 4294967295`);
  if (!asksIpv4(conf) && conf.ipam.ipv6 === undefined)
    throw invalid('"ipv4" is false and "ipv6" is not given, so there is nothing to ask for');
  if (conf.ipam.rapidCommit && conf.ipam.ipv6 !== 'dhcp')
    throw invalid('"rapidCommit" is of DHCPv6, it needs "ipv6": "dhcp"');
  const families = [...(asksIpv4(conf) ? [4] : []), ...(conf.ipam.ipv6 ? [6] : [])];
  const wrong = servers?.find(text => !families.includes(findIp(text)?.family ?? 0));
  if (wrong !== undefined)
    throw invalid(
      `"servers" holds "${wrong}", expected ${families.map(one => `IPv${one}`).join(' and ')} addresses`,
    );
  wishesOf(conf, []);
}

/** Whether an IPv4 lease is asked for. */
export function asksIpv4({ ipam }: DhcpConf): boolean {
  return ipam.ipv4 ?? true;
}

/** Whether something is obtained that has to be renewed. The kernel itself keeps what it forms from advertisements. */
export function needsUpkeep(conf: DhcpConf): boolean {
  return asksIpv4(conf) || conf.ipam.ipv6 === 'dhcp';
}

/** The servers of a family whose answers count, in text; undefined for any. */
export function serversOf(servers: readonly string[] | undefined, family: 4 | 6): string[] | undefined {
  const own = servers?.flatMap(text => findIp(text) ?? []).filter(ip => ip.family === family) ?? [];
  return own.length || servers?.length === 0 ? own.map(renderIp) : undefined;
}

function codeOf(option: string): number {
  const named = OPTION_NAMES[option];
  if (named !== undefined) return named;
  const code = /^\d{1,3}$/.test(option) ? Number(option) : Number.NaN;
  if (code >= 0 && code <= 255) return code;
  const names = Object.keys(OPTION_NAMES).join(', ');
  throw invalid(`"${option}" is no option, expected a number from 0 to 255 or one of ${names}`);
}

function invalid(problem: string): CniError {
  return invalidConfig(`Cannot use dhcp configuration: ${problem}`);
}
