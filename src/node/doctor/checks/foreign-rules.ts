// Do rules of other programs drop packets of containers, or lead their ports elsewhere?
//
// A packet must pass every base chain of a hook, so a rule of ours that accepts it does not outweigh one of others that drops it.
import type { FilterTable } from '../../../netlink/tables.ts';
import { some } from '../../words.ts';
import { acceptDevices, findFates, type PodFate } from '../filter/fates.ts';
import { type Check, groupBy, type NodeView, namePods, type Problem, problem } from '../finding.ts';

/** Rules of Docker, ufw, firewalld, iptables or the administrator. */
export const foreignRules: Check = node => {
  const { pods, filter } = node;
  if (pods?.length === 0) return 'there are no containers that the node routes for';
  const blind = (why: string) => [
    problem('unexamined', `whether rules of other programs stop packets of containers: ${why}`),
  ];
  if (pods === undefined || filter === undefined) return blind('it is not known which containers there are');
  let tables: readonly FilterTable[];
  try {
    tables = filter();
  } catch (error) {
    return blind((error as Error).message);
  }
  const groups = groupBy(findFates(tables, pods, node), kindOf);
  if (groups.size === 0) return 'no rule of another program stops packets of containers';
  return [...groups.values()].map(group => describe(group, tables, node));
};

/** What one rule drops is told at once; translations differ in the port and in where they lead. */
function kindOf(fate: PodFate): string {
  const { what, port, to, isSure } = fate;
  const which = what === 'translate' ? `${port} ${to}` : '';
  return `${placeOf(fate)} ${isSure} ${which}`;
}

/** Ports that are named. */
const MOST_PORTS = 3;

/** `port 80/tcp`, `ports 80/tcp, 81/tcp, 82/tcp and 7 more`. */
function namePorts(group: readonly PodFate[]): string {
  const ports = [...new Set(group.flatMap(({ port }) => port ?? []))];
  return `port${ports.length === 1 ? '' : 's'} ${some(ports, MOST_PORTS)}`;
}

function describe(group: readonly PodFate[], tables: readonly FilterTable[], node: NodeView): Problem {
  const [fate] = group;
  if (fate === undefined) throw new Error('Cannot describe findings: there are none');
  const { isSure, what, port, to } = fate;
  const podsOf = (fates: readonly PodFate[]) =>
    namePods(
      fates.map(({ pod }) => pod),
      node,
    );
  const verb = (sure: string, unsure: string) => (isSure ? sure : `may ${unsure}`);
  const out = group.filter(one => one.port === undefined);
  const into = group.filter(one => one.port !== undefined);
  const led = out.length && podsOf(out) === podsOf(into) ? '' : ` to ${podsOf(into)}`;
  const dropped = [
    ...(out.length ? [`of ${podsOf(out)} to the outside`] : []),
    ...(into.length ? [`through ${namePorts(into)} of the host${led}`] : []),
  ];
  const deed =
    what === 'translate'
      ? `${verb('leads', 'lead')} port ${port} of the host to ${to ?? 'another port or address'} instead of ${podsOf(group)}`
      : `${verb('drops', 'drop')} connections ${dropped.join(', and ')}`;
  const found = `${placeOf(fate)} ${deed}`;
  return problem(isSure ? 'error' : 'warning', found, mendFor(group, fate, tables));
}

function placeOf({ table, chain, handle, what }: PodFate): string {
  const where = `chain "${chain}" of table ${table.family} ${table.name}`;
  if (handle !== undefined) return `the rule with handle ${handle} in ${where}`;
  return what === 'drop' ? `the policy of ${where}` : where;
}

function mendFor(group: readonly PodFate[], fate: PodFate, tables: readonly FilterTable[]): string {
  const { table, base, chain, handle, isSure, what } = fate;
  const name = `${table.family} ${table.name}`;
  const remove = `nft delete rule ${name} ${chain} handle ${handle}`;
  const accept = `nft 'chain ${name} ${chain} { policy accept; }'`;
  if (what === 'translate') return `${remove}  # or map another port`;
  const own = tables.find(one => one.table.family === table.family && one.table.name === table.name);
  const isForward = own?.chains.find(one => one.name === base)?.base?.hook === 'forward';
  // Before the port is translated, no rule about the container's device can accept.
  if (isSure && !isForward) return handle === undefined ? accept : remove;
  if (!isSure || !isForward) return `nft -a list chain ${name} ${chain}`;
  return acceptDevices(fate, own?.chains ?? [], [...new Set(group.map(({ pod }) => pod.device))]);
}
