// Do routing policy rules of other programs drop packets of containers?
import { cidrContains } from '../../net/cidr.ts';
import { findIp } from '../../net/ip.ts';
import { RT_TABLE_MAIN } from '../../netlink/rtnl/route.ts';
import { type Rule, renderRule } from '../../netlink/rtnl/rule.ts';
import { type Check, fine } from '../finding.ts';
import { namePods, type RoutedPod } from '../routed-pod.ts';

/** A rule of type blackhole, unreachable or prohibit that comes before the main table. */
export const routingRules: Check = {
  id: 'kernel.routing-rules',
  run({ pods, policyRules }) {
    if (pods === undefined) {
      const found = 'whether routing rules drop packets of containers: it is not known which there are';
      return [{ id: this.id, severity: 'unexamined', found }];
    }
    const rules = pods.length > 0 ? (policyRules?.() ?? []) : [];
    const findings = rules.filter(isEarly).flatMap(rule => {
      const concerned = pods.filter(pod => concerns(rule, pod));
      if (concerned.length === 0) return [];
      const found = `the routing rule "${renderRule(rule)}" drops packets of ${namePods(concerned)}`;
      const words = renderRule(rule).replace(': ', ' ');
      const mend = `ip${rule.family === 6 ? ' -6' : ''} rule del priority ${words}`;
      return [{ id: this.id, severity: 'error' as const, found, mend }];
    });
    return findings.length ? findings : fine(this.id, 'no routing rule drops packets of containers');

    function isEarly(rule: Rule): boolean {
      const isMain = ({ family, table, from, to, iif }: Rule) =>
        family === rule.family && table === RT_TABLE_MAIN && !from && !to && !iif;
      const main = rules.find(isMain)?.priority ?? Number.POSITIVE_INFINITY;
      return rule.drops !== undefined && rule.priority < main && rule.mark === undefined;
    }
  },
};

/** One about packets from containers to a part of the world only may be meant. */
function concerns({ family, from, to, iif, oif }: Rule, pod: RoutedPod): boolean {
  if (family !== pod.family || (iif !== undefined && iif !== pod.device) || oif !== undefined) return false;
  const address = findIp(pod.address);
  if (address === undefined) return false;
  if (to !== undefined) return cidrContains(to, address) && from === undefined;
  return from === undefined || cidrContains(from, address);
}
