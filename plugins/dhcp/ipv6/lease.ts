// What has a DHCPv6 server granted, and until when?
import * as z from 'zod/mini';
import { type Ip, renderIp } from '../../../src/net/ip.ts';
import { searchOf } from '../codec/values.ts';
import type { Identity } from '../identity.ts';
import { IPV6_PART, type LeaseKind } from '../record.ts';
import type { Answer } from './client/conversation.ts';
import { type Association, findAssociation, type GrantedAddress } from './codec/association.ts';
import { addressesOf, Code, findOption, isGlobal, Status, statusIn } from './codec/options.ts';

/** A lease, as it is kept on disk. */
export const Lease = z.object({
  /** Without a prefix length, which servers do not know. */
  address: z.string(),
  nameservers: z.array(z.string()),
  search: z.array(z.string()),
  /** DUID of the server, in hexadecimal digits. */
  server: z.string(),
  /** Seconds since the boot when the granted request was sent; what follows counts from there. */
  since: z.number(),
  /** Seconds for which the address is valid, and for which new connections use it; absent for ever. */
  duration: z.optional(z.number()),
  preferred: z.optional(z.number()),
  /** Seconds after which it is renewed (T1), and after which any server is asked (T2). */
  renewAfter: z.optional(z.number()),
  rebindAfter: z.optional(z.number()),
});
export type Lease = z.output<typeof Lease>;

/** RFC 9915, section 7.7: without end. */
export const FOREVER = 0xffffffff;
/** A shorter lease would keep the node busy with nothing else. */
const MIN_DURATION_S = 10;
/** RFC 9915, section 14.2: of the preferred lifetime, if the server leaves the times to the client. */
const T1 = 0.5;
const T2 = 0.8;

/** What an answer says about a client's address. */
interface Granted {
  /** A lease of an address. */
  readonly lease?: Lease;
  /** What the server says against it, in text. */
  readonly refusal?: string;
  /** The code of what it says, or that of success. */
  readonly code: number;
  /** Addresses that it ends. */
  readonly ended: readonly string[];
}

/**
 * What an answer grants or ends.
 * @param server its DUID
 * @param since seconds since the boot when it was asked for
 */
export function grantIn(answer: Answer, iaid: Uint8Array, since: number): Granted {
  const { options } = answer.message;
  const whole = statusIn(options);
  const own = findAssociation(options, iaid);
  const ended = (own?.addresses ?? []).filter(({ valid }) => valid === 0).map(({ ip }) => renderIp(ip));
  const found = own?.addresses.find(one => flawOf(one) === undefined);
  const [refused] = [whole, own?.status, ...(own?.addresses ?? []).map(one => one.status)].filter(
    one => one !== undefined && one.code !== Status.success,
  );
  if (found && own && whole.code === Status.success && own.status.code === Status.success)
    return { lease: leaseOf(answer, own, found, since), code: Status.success, ended };
  const [flaw = 'it granted no address'] = (own?.addresses ?? []).flatMap(one => flawOf(one) ?? []);
  return { refusal: refused?.text ?? flaw, code: refused?.code ?? Status.success, ended };
}

/** Why an address cannot be used, in text; undefined if it can. Lifetimes: RFC 9915, section 18.2.10.1. */
function flawOf({ ip, preferred, valid, status }: GrantedAddress): string | undefined {
  if (status.code !== Status.success) return status.text;
  if (!isGlobal(ip)) return `no host can have the address ${renderIp(ip)}`;
  if (valid === 0) return `it has ended ${renderIp(ip)}`;
  return preferred > valid
    ? `${renderIp(ip)} would be preferred for ${preferred} s, but valid for only ${valid} s`
    : undefined;
}

function leaseOf(
  answer: Answer,
  own: Association,
  { ip, preferred, valid }: GrantedAddress,
  since: number,
): Lease {
  const { options } = answer.message;
  return {
    address: renderIp(ip),
    nameservers: resolversOf(options).map(renderIp),
    search: searchOf(findOption(options, Code.domainSearch)),
    server: Buffer.from(answer.server).toString('hex'),
    since,
    ...timesOf(own, preferred, valid),
  };
}

/** The resolvers of an answer. */
export function resolversOf(options: Answer['message']['options']): Ip[] {
  return addressesOf(findOption(options, Code.nameservers));
}

function timesOf(own: Association, preferred: number, valid: number): Partial<Lease> {
  if (valid === FOREVER) return preferred === FOREVER ? {} : { preferred };
  const duration = Math.max(valid, MIN_DURATION_S);
  const base = Math.min(Math.max(preferred, MIN_DURATION_S), duration);
  const [t1, t2] = [own.renewAfter, own.rebindAfter];
  const isInOrder = t1 > 0 && t1 <= t2 && t2 < duration;
  return {
    duration,
    preferred: Math.min(preferred, duration),
    renewAfter: isInOrder ? t1 : Math.floor(base * T1),
    rebindAfter: isInOrder ? t2 : Math.floor(base * T2),
  };
}

const LeaseState = z.object({
  lease: Lease,
  /** Who the client is: DUID and IAID, in hexadecimal digits. */
  duid: z.string(),
  iaid: z.string(),
  /** Prefix length of the address on the interface. */
  prefix: z.number(),
  /** The interface has not been seen with the address yet: ADD, or the plugin that called it, may still be at work. */
  unseen: z.optional(z.boolean()),
  /** The lease is over, and its address was taken from the interface. */
  withdrawn: z.optional(z.boolean()),
  /** The address that ADD reported, if the interface has another one since. */
  reported: z.optional(z.string()),
});
export type LeaseState = z.output<typeof LeaseState>;

/** Records of IPv6 leases. */
export const IPV6_LEASES: LeaseKind<LeaseState> = { part: IPV6_PART, schema: LeaseState };

/** The client that a lease is for. */
export function identityIn({ duid, iaid }: LeaseState): Identity {
  return { duid: Uint8Array.from(Buffer.from(duid, 'hex')), iaid: Uint8Array.from(Buffer.from(iaid, 'hex')) };
}
