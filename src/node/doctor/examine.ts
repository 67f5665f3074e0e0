// What is wrong with this node?
import { between, mtu, needed, pools, subnets } from './checks/addresses.ts';
import { broken, executables, permissions, shadowed, tooNew, unlisted } from './checks/configuration.ts';
import {
  bridgeNetfilter,
  executableMemory,
  firewallManagers,
  foreignRules,
  forwarding,
  macPolicy,
  packetFilters,
  routingRules,
  sysctlFiles,
} from './checks/kernel.ts';
import { abandoned, daemon, damaged, garbage, locks, storage, unsettled } from './checks/state.ts';
import { type Check, type Finding, isDenied, type NodeView, SEVERITIES, type Seen } from './finding.ts';

/** Every check by its id, in the order of the report; ids are stable. */
export const CHECKS: Readonly<Record<string, Check>> = {
  'configuration.broken': broken,
  'configuration.shadowed': shadowed,
  'configuration.too-new': tooNew,
  'configuration.unlisted': unlisted,
  executables,
  permissions,
  'state.storage': storage,
  'state.damaged': damaged,
  'state.unsettled': unsettled,
  'state.abandoned': abandoned,
  'state.garbage': garbage,
  'state.locks': locks,
  'ipam.pools': pools,
  daemon,
  'network.device': needed,
  'network.subnet-overlap': subnets,
  'network.mtu': mtu,
  'network.nodes': between,
  'kernel.forwarding': forwarding,
  'kernel.sysctl-files': sysctlFiles,
  'kernel.executable-memory': executableMemory,
  'kernel.bridge-nf': bridgeNetfilter,
  'kernel.routing-rules': routingRules,
  'kernel.foreign-rules': foreignRules,
  'kernel.packet-filters': packetFilters,
  'kernel.firewall-managers': firewallManagers,
  'udev.mac-policy': macPolicy,
};

/**
 * Runs every check of the node, then CHECK of its attachments. One that fails is reported and does not stop the others. The worst
 * findings come first.
 * @param checkAttachments the last check, which takes time
 */
export async function findProblems(
  node: NodeView,
  checkAttachments: () => Promise<Seen> | Seen = () => [],
): Promise<Finding[]> {
  const findings: Finding[] = [];
  const checks: Record<string, (node: NodeView) => Promise<Seen> | Seen> = {
    ...CHECKS,
    attachments: checkAttachments,
  };
  for (const [id, check] of Object.entries(checks)) {
    try {
      const seen = await check(node);
      if (typeof seen === 'string') findings.push({ id, severity: 'ok', found: seen });
      else findings.push(...seen.map(one => ({ id, ...one })));
    } catch (error) {
      const { message } = error as Error;
      if (isDenied(message)) findings.push({ id, severity: 'unexamined', found: message });
      else findings.push({ id, severity: 'warning', found: `cannot run this check: ${message}` });
    }
  }
  const rank = ({ severity }: Finding): number => SEVERITIES.indexOf(severity);
  return findings.sort((a, b) => rank(a) - rank(b));
}
