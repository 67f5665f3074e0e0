// What is wrong with this node?
import { mtu, subnets } from './checks/addresses.ts';
import { broken, executables, shadowed } from './checks/configuration.ts';
import { bridgeNetfilter, firewallManagers, forwarding, macPolicy, packetFilters } from './checks/kernel.ts';
import { permissions } from './checks/permissions.ts';
import { abandoned, damaged, lastSuccess, locks, pools, storage, unsettled } from './checks/state.ts';
import { type Check, type Finding, type NodeView, SEVERITIES } from './finding.ts';

/** Every check, in the order of the report; ids are stable. */
export const CHECKS: readonly Check[] = [
  ...[broken, shadowed, executables, permissions],
  ...[storage, damaged, unsettled, abandoned, locks, pools],
  ...[subnets, mtu],
  ...[forwarding, bridgeNetfilter, packetFilters, firewallManagers, macPolicy],
  lastSuccess,
];

/** Runs every check; one that cannot be made says so and keeps no other from being made. Worst findings come first. */
export function examine(node: NodeView): Finding[] {
  const findings = CHECKS.flatMap((check): readonly Finding[] => {
    try {
      return check.run(node);
    } catch (error) {
      return [
        { id: check.id, severity: 'warning', found: `cannot be examined: ${(error as Error).message}` },
      ];
    }
  });
  const rank = ({ severity }: Finding): number => SEVERITIES.indexOf(severity);
  return findings.sort((a, b) => rank(a) - rank(b));
}
