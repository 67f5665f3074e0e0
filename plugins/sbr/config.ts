// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { findIp, type Ip } from '../../src/net/ip.ts';
import { findTableProblem } from '../../src/netlink/rtnl/route.ts';

/** The request as sbr sees it. Values are validated later: DEL must work with invalid ones. */
export const SbrConf = z.extend(PluginConfig, {
  /** Existing routing table to use; no routes are changed. By default each address gets a free table of its own. */
  table: z.optional(z.int()),
  /** Gateways of the default routes, at most one per IP version; those of `prevResult` if absent. Ignored with `table`. */
  gateways: z.optional(z.array(z.string())),
  /** Keep the subnets in the main table, with the pod's address as source. Ignored with `table`. */
  addSourceHints: z._default(z.boolean(), false),
});
export type SbrConf = z.output<typeof SbrConf>;

/** The validated configuration. */
export interface SbrOptions {
  readonly table?: number;
  readonly gateways: readonly Ip[];
  readonly addSourceHints: boolean;
}

/**
 * Validates the options; called before anything is changed.
 * @throws CniError 7 naming key and value
 */
export function parseSbrConf({ table, gateways = [], addSourceHints }: SbrConf): SbrOptions {
  const problem = table === undefined ? undefined : findTableProblem(table);
  if (problem) throw invalid('table', table, problem);
  const ips: Ip[] = [];
  for (const text of gateways) {
    const ip = findIp(text);
    if (ip === undefined) throw invalid('gateways', text, 'it is not an IP address');
    if (ips.some(({ family }) => family === ip.family)) {
      throw invalid('gateways', gateways, `expected at most one of IPv${ip.family}`);
    }
    ips.push(ip);
  }
  return { ...(table ? { table } : {}), gateways: ips, addSourceHints };
}

function invalid(key: string, value: unknown, problem: string): CniError {
  return invalidConfig(`Cannot use "${key}": ${JSON.stringify(value)}: ${problem}`);
}
