// Which result follows from a lease, and when is the lease visited again?
import type { Result, ResultDns } from '../../src/cni/result.ts';
import { RT_SCOPE_LINK } from '../../src/netlink/rtnl/addr.ts';
import type { Lease } from './lease.ts';

/** Pause between attempts while a server does not answer (RFC 2131, 4.4.5). */
const RETRY_S = 60;
/** However short a lease, its server is left in peace for this long. */
const MIN_PAUSE_S = 2;

/** What a lease needs at a moment of its life (RFC 2131, 4.4.5). */
type Stage = 'bound' | 'renewing' | 'rebinding' | 'expired';

/** What a lease's life depends on. */
export type Times = Pick<Lease, 'since' | 'duration' | 'renewAfter' | 'rebindAfter'>;

/** The stage that a lease is in, by the clock of the boot. */
export function stageOf({ since, duration, renewAfter, rebindAfter }: Times, now: number): Stage {
  const age = now - since;
  if (duration === undefined || age < (renewAfter ?? duration)) return 'bound';
  if (age >= duration) return 'expired';
  return age < (rebindAfter ?? duration) ? 'renewing' : 'rebinding';
}

/**
 * When the lease needs attention next, in seconds since the boot; undefined for one without end. While nothing answers, half of
 * the time that is left until the next stage passes between attempts, but at least a minute if there is one.
 */
export function dueAt(lease: Times, now: number): number | undefined {
  const { since, duration, renewAfter = 0, rebindAfter = 0 } = lease;
  if (duration === undefined) return undefined;
  const stage = stageOf(lease, now);
  if (stage === 'bound') return Math.max(since + renewAfter, now + MIN_PAUSE_S);
  if (stage === 'expired') return now + RETRY_S;
  const end = since + (stage === 'renewing' ? rebindAfter : duration);
  return Math.max(now + MIN_PAUSE_S, Math.min(end, now + Math.max(RETRY_S, (end - now) / 2)));
}

/** The IPAM result. @param priority metric of all routes */
export function resultOf(lease: Lease, priority: number | undefined): Result {
  const { address, gateway } = lease;
  const dns = dnsOf(lease);
  return {
    ips: [{ address, ...(gateway ? { gateway } : {}) }],
    routes: lease.routes.map(({ dst, gw }) => ({
      dst,
      ...(gw ? { gw } : { scope: RT_SCOPE_LINK }),
      ...(priority ? { priority } : {}),
    })),
    ...(dns ? { dns } : {}),
  };
}

/** One result of several, for different families. Resolvers keep the order of the results. */
export function mergeResults(results: readonly Result[]): Result {
  const [first = {}, ...more] = results;
  if (more.length === 0) return first;
  const dns = results.flatMap(one => one.dns ?? []);
  const joined = (key: 'nameservers' | 'search') => [...new Set(dns.flatMap(one => one[key] ?? []))];
  const [domain] = dns.flatMap(one => one.domain ?? []);
  const merged = dnsOf({ nameservers: joined('nameservers'), domain, search: joined('search') });
  return {
    ips: results.flatMap(({ ips = [] }) => ips),
    routes: results.flatMap(({ routes = [] }) => routes),
    ...(merged ? { dns: merged } : {}),
  };
}

/** Resolver settings for a result; undefined if there are none. */
export function dnsOf({
  nameservers,
  domain,
  search,
}: Pick<Lease, 'nameservers' | 'domain' | 'search'>): ResultDns | undefined {
  if (nameservers.length === 0 && !domain && search.length === 0) return undefined;
  return {
    ...(nameservers.length ? { nameservers: [...nameservers] } : {}),
    ...(domain ? { domain } : {}),
    ...(search.length ? { search: [...search] } : {}),
  };
}
