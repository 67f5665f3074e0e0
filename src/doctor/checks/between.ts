// Do routes lead to the pods of the cluster's other nodes?
import { type Check, type Finding, fine } from '../finding.ts';

/** Without such a route, pods reach the pods of a node from some nodes only, or from none. */
export const between: Check = {
  id: 'network.nodes',
  run(node) {
    const view = node.between?.();
    if (view === undefined) return fine(this.id, 'no daemon keeps routes to other nodes');
    const { nodes, routes, problems, differences } = view;
    const [first] = differences;
    const others = differences.length - 1;
    const findings: Finding[] = problems.map(problem => ({
      id: this.id,
      severity: 'warning',
      found: problem,
      mend: 'correct the nodes that the setting "nodes" names, or the addresses of this node',
    }));
    if (first !== undefined) {
      const more = others > 0 ? `, and ${others} more` : '';
      findings.unshift({
        id: this.id,
        severity: 'error',
        found: `pods of other nodes are not reached as planned: ${first}${more}`,
        mend: 'catena daemon --status  # a daemon with the setting "nodes" repairs this within a second, or logs why not',
      });
    }
    return findings.length ? findings : fine(this.id, `${routes} routes lead to ${nodes} other nodes`);
  },
};
