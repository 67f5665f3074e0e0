// What is wrong with this node?
import { mtu, needed, subnets } from './checks/addresses.ts';
import { broken, executables, shadowed } from './checks/configuration.ts';
import { daemon } from './checks/daemon.ts';
import { foreignRules } from './checks/foreign-rules.ts';
import { forwarding } from './checks/forwarding.ts';
import { bridgeNetfilter, firewallManagers, macPolicy, packetFilters } from './checks/kernel.ts';
import { permissions } from './checks/permissions.ts';
import { abandoned, damaged, lastSuccess, locks, pools, storage, unsettled } from './checks/state.ts';
import { sysctlFiles } from './checks/sysctl-files.ts';
import { type Check, type Finding, type NodeView, SEVERITIES } from './finding.ts';

/** Every check, in the order of the report; ids are stable. */
export const CHECKS: readonly Check[] = [
  broken,
  shadowed,
  executables,
  permissions,
  storage,
  damaged,
  unsettled,
  abandoned,
  locks,
  pools,
  daemon,
  needed,
  subnets,
  mtu,
  forwarding,
  sysctlFiles,
  bridgeNetfilter,
  foreignRules,
  packetFilters,
  firewallManagers,
  macPolicy,
  lastSuccess,
];

/** Runs every check. A check that fails is reported and does not stop the others. The worst findings come first. */
export function examine(node: NodeView): Finding[] {
  const findings = CHECKS.flatMap((check): readonly Finding[] => {
    try {
      return check.run(node);
    } catch (error) {
      return [
        { id: check.id, severity: 'warning', found: `cannot run this check: ${(error as Error).message}` },
      ];
    }
  });
  return worstFirst(findings);
}

/** Sorts findings into the order in which they are shown. */
export function worstFirst(findings: readonly Finding[]): Finding[] {
  const rank = ({ severity }: Finding): number => SEVERITIES.indexOf(severity);
  return findings.toSorted((a, b) => rank(a) - rank(b));
}
