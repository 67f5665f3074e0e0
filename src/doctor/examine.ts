// What is wrong with this node?
import { between, mtu, needed, pools, subnets } from './checks/addresses.ts';
import { broken, executables, permissions, shadowed, tooNew, unlisted } from './checks/configuration.ts';
import { daemon } from './checks/daemon.ts';
import { foreignRules } from './checks/foreign-rules.ts';
import {
  bridgeNetfilter,
  executableMemory,
  firewallManagers,
  forwarding,
  macPolicy,
  packetFilters,
  routingRules,
  sysctlFiles,
} from './checks/kernel.ts';
import { abandoned, damaged, garbage, locks, storage, unsettled } from './checks/state.ts';
import { type Check, type Finding, type NodeView, SEVERITIES } from './finding.ts';
import { isDenied } from './readable.ts';

/** Every check, in the order of the report; ids are stable. */
export const CHECKS: readonly Check[] = [
  broken,
  shadowed,
  tooNew,
  unlisted,
  executables,
  permissions,
  storage,
  damaged,
  unsettled,
  abandoned,
  garbage,
  locks,
  pools,
  daemon,
  needed,
  subnets,
  mtu,
  between,
  forwarding,
  sysctlFiles,
  executableMemory,
  bridgeNetfilter,
  routingRules,
  foreignRules,
  packetFilters,
  firewallManagers,
  macPolicy,
];

/** Runs every check. A check that fails is reported and does not stop the others. The worst findings come first. */
export function examine(node: NodeView): Finding[] {
  const findings = CHECKS.flatMap((check): readonly Finding[] => {
    try {
      return check.run(node);
    } catch (error) {
      const { message } = error as Error;
      if (isDenied(message)) return [{ id: check.id, severity: 'unexamined', found: message }];
      return [{ id: check.id, severity: 'warning', found: `cannot run this check: ${message}` }];
    }
  });
  return worstFirst(findings);
}

/** Sorts findings into the order in which they are shown. */
export function worstFirst(findings: readonly Finding[]): Finding[] {
  const rank = ({ severity }: Finding): number => SEVERITIES.indexOf(severity);
  return findings.toSorted((a, b) => rank(a) - rank(b));
}
