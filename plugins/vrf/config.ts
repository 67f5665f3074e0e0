// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';
import { RESERVED_TABLES } from '../../src/netlink/rtnl/route.ts';

/** The request as vrf sees it. Values are validated later: DEL must work with invalid ones. */
export const VrfConf = z.extend(PluginConfig, {
  /** Name of the VRF device in the container; created when missing. Required. */
  vrfname: z.optional(z.string()),
  /** Routing table of a new VRF; by default the lowest that nothing uses. An existing VRF must have this one. */
  table: z.optional(z.int()),
});
export type VrfConf = z.output<typeof VrfConf>;

/** The validated configuration. */
export interface VrfOptions {
  readonly name: string;
  readonly table: number | undefined;
}

/**
 * Validates the options; called before anything is changed.
 * @throws CniError 7 naming key and value
 */
export function parseVrfConf({ vrfname, table }: VrfConf): VrfOptions {
  if (!vrfname) throw invalid('"vrfname" is missing, expected the name of the VRF');
  const problem = findIfnameProblem(vrfname);
  if (problem) throw invalid(`"vrfname" is "${vrfname}": ${problem}`);
  // As in the reference, 0 means any table.
  if (table !== undefined && (table < 0 || table > 0xffffffff || RESERVED_TABLES.includes(table))) {
    throw invalid(
      `"table" is ${table}, expected 1 to 4294967295, except 253, 254 and 255, which are the kernel's`,
    );
  }
  return { name: vrfname, table: table || undefined };
}

function invalid(what: string): CniError {
  return invalidConfig(`Cannot use vrf configuration: ${what}`);
}
