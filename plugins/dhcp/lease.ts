// What has a server granted, and until when?
import * as z from 'zod/mini';
import { renderMac } from '../../src/net/interface.ts';
import { ipFromBytes, renderIp } from '../../src/net/ip.ts';
import type { Answer } from './client/conversation.ts';
import { Code } from './codec/options.ts';
import {
  addressesOf,
  classlessRoutesOf,
  isHost,
  nameOf,
  numberOf,
  prefixOf,
  type ServedRoute,
  searchOf,
  staticRoutesOf,
} from './codec/values.ts';

/** A route, in text. Without a gateway, the destination is on the link. */
const LeasedRoute = z.object({ dst: z.string(), gw: z.optional(z.string()) });

/** A lease, as it is kept on disk. */
export const Lease = z.object({
  /** With the prefix length of the subnet. */
  address: z.string(),
  gateway: z.optional(z.string()),
  routes: z.array(LeasedRoute),
  nameservers: z.array(z.string()),
  domain: z.optional(z.string()),
  search: z.array(z.string()),
  /** Bytes; not bounded by the interface's own yet. */
  mtu: z.optional(z.number()),
  server: z.string(),
  /** Hardware address from which the server answered: its own, or that of the router to it. */
  serverMac: z.string(),
  /** Seconds since the boot when the granted request was sent; what follows counts from there. */
  since: z.number(),
  /** Seconds; absent for a lease without end. */
  duration: z.optional(z.number()),
  /** Seconds after which it is renewed (T1), and after which any server is asked (T2). */
  renewAfter: z.optional(z.number()),
  rebindAfter: z.optional(z.number()),
});
export type Lease = z.output<typeof Lease>;

/** RFC 2132, 9.2: a lease without end. */
const FOREVER = 0xffffffff;
/** The reference's, for a server that names none. */
const DEFAULT_DURATION_S = 3600;
/** A shorter lease would keep the node busy with nothing else. */
const MIN_DURATION_S = 10;
/** RFC 2131, 4.4.5 */
const T1 = 0.5;
const T2 = 0.875;
/** Every IPv4 host accepts this much (RFC 791); less is a mistake or an attack. */
const MIN_MTU = 576;

/**
 * The lease that an acknowledgement grants.
 * @param since seconds since the boot when it was requested
 * @returns a text that says why it cannot be used, if it cannot
 */
export function leaseOf({ message, mac }: Answer, since: number): Lease | string {
  const { options, yiaddr } = message;
  const ip = ipFromBytes(yiaddr);
  const prefix = prefixOf(options.get(Code.subnetMask));
  const server = serverOf(message.options);
  if (!isHost(ip)) return `no host can have the address ${renderIp(ip)}`;
  if (prefix === undefined) return `${renderIp(ip)} came without a subnet mask`;
  if (server === undefined) return `${renderIp(ip)} came without the address of the server`;
  const [router] = addressesOf(options.get(Code.routers)).filter(({ value }) => value !== ip.value);
  const gateway = router && renderIp(router);
  return {
    address: `${renderIp(ip)}/${prefix}`,
    ...(gateway ? { gateway } : {}),
    routes: routesOf(options, gateway),
    nameservers: addressesOf(options.get(Code.nameservers)).map(renderIp),
    ...domainOf(options),
    search: searchOf(options.get(Code.domainSearch)),
    ...mtuOf(options),
    server: renderIp(ipFromBytes(server)),
    serverMac: renderMac(mac),
    since,
    ...timesOf(options),
  };
}

/** The address of the server that sent a message, in 4 bytes. */
export function serverOf(options: Answer['message']['options']): Uint8Array | undefined {
  const value = options.get(Code.serverId);
  return value?.length === 4 && isHost(ipFromBytes(value)) ? value : undefined;
}

/** Option 121 replaces 33 and 3 (RFC 3442). */
function routesOf(options: Answer['message']['options'], gateway: string | undefined): Lease['routes'] {
  const classless = classlessRoutesOf(options.get(Code.classlessRoutes));
  if (classless?.length) return classless.map(renderRoute);
  const fixed = staticRoutesOf(options.get(Code.staticRoutes)).map(renderRoute);
  return gateway ? [...fixed, { dst: '0.0.0.0/0', gw: gateway }] : fixed;
}

function renderRoute({ dst, gateway }: ServedRoute): Lease['routes'][number] {
  return { dst: `${renderIp(dst.ip)}/${dst.prefix}`, ...(gateway ? { gw: renderIp(gateway) } : {}) };
}

function domainOf(options: Answer['message']['options']): Pick<Lease, 'domain'> {
  const domain = nameOf(options.get(Code.domainName));
  return domain ? { domain } : {};
}

function mtuOf(options: Answer['message']['options']): Pick<Lease, 'mtu'> {
  const mtu = numberOf(options.get(Code.interfaceMtu));
  return mtu !== undefined && mtu >= MIN_MTU && mtu <= 0xffff ? { mtu } : {};
}

function timesOf(options: Answer['message']['options']): Partial<Lease> {
  const granted = numberOf(options.get(Code.leaseTime)) ?? DEFAULT_DURATION_S;
  if (granted === FOREVER) return {};
  const duration = Math.max(granted, MIN_DURATION_S);
  const t1 = numberOf(options.get(Code.renewalTime));
  const t2 = numberOf(options.get(Code.rebindingTime));
  const rebindAfter = t2 !== undefined && t2 > 0 && t2 < duration ? t2 : Math.floor(duration * T2);
  const renewAfter = t1 !== undefined && t1 > 0 && t1 <= rebindAfter ? t1 : Math.floor(duration * T1);
  return { duration, rebindAfter, renewAfter: Math.min(renewAfter, rebindAfter) };
}

const LeaseState = z.object({
  lease: Lease,
  /** Value of option 61, in hexadecimal digits. */
  clientId: z.string(),
  /** The lease is over, and its address was taken from the interface. */
  withdrawn: z.optional(z.boolean()),
  /** The address that ADD reported, if the interface has another one since. */
  reported: z.optional(z.string()),
});
export type LeaseState = z.output<typeof LeaseState>;

/** Records of IPv4 leases. */
export const IPV4_LEASES = { schema: LeaseState };

/** The client identifier that a lease is for. */
export function clientIdIn({ clientId }: LeaseState): Uint8Array {
  return Uint8Array.from(Buffer.from(clientId, 'hex'));
}
