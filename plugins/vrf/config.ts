// What may be configured, and what does each option mean?
import * as z from 'zod/mini';
import { type CniError, invalidConfig } from '../../src/cni/errors.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { findIfnameProblem } from '../../src/net/interface.ts';
import { findTableProblem } from '../../src/netlink/rtnl/route.ts';

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
  const tableProblem = table === undefined ? undefined : findTableProblem(table);
  if (tableProblem) throw invalid(`"table" is ${table}, ${tableProblem}`);
  return { name: vrfname, table: table || undefined };
}

function invalid(what: string): CniError {
  return invalidConfig(`Cannot use vrf configuration: ${what}`);
}
