// Do the attached containers still have what their ADD gave them?
import type { Runtime } from '../../chain/run/runtime.ts';
import type { SegmentRunner } from '../../chain/run/segment.ts';
import { type AttachmentCheck, CHECK_BUDGET_MS, checkAll } from '../../watch/check-all.ts';
import { type Finding, fine, type NodeView } from '../finding.ts';
import { groupBy } from '../group.ts';
import { ROOT } from '../user.ts';

const ID = 'attachments';

/**
 * Runs CHECK for every existing attachment, whichever runtime made it, with the configuration of its ADD.
 * @param openSegments makes what runs one chain at a time
 */
export async function examineAttachments(
  { pods, user = ROOT }: NodeView,
  runtime: Runtime,
  openSegments: () => SegmentRunner,
): Promise<readonly Finding[]> {
  // In a user namespace, root may enter the namespaces of its own containers, and no others.
  if (user.id !== 0 || (user.unknown !== undefined && pods === undefined))
    return [{ id: ID, severity: 'unexamined', found: 'whether containers have what their ADD gave them' }];
  const checks = await checkAll(runtime, { budgetMs: CHECK_BUDGET_MS, openSegments });
  const findings = [...checks.flatMap(describeBroken), ...describeUnknown(checks)];
  const sound = checks.filter(({ state }) => state === 'sound').length;
  return findings.length ? findings : fine(ID, `${sound} are as their ADD left them`);
}

function describeBroken({ state, problem, mend, network, containerId, ifname }: AttachmentCheck): Finding[] {
  if (state !== 'broken' || mend === undefined) return [];
  const found = `interface "${ifname}" of container "${containerId}" on network "${network}" is not as its ADD left it: ${problem}`;
  return [{ id: ID, severity: 'error', found, mend, attachment: { network, containerId, ifname } }];
}

/** One finding for each network and reason. A runtime's loopback attachment has nothing to check. */
function describeUnknown(checks: readonly AttachmentCheck[]): Finding[] {
  const unknown = checks.filter(({ state, ifname }) => state === 'unknown' && ifname !== 'lo');
  const reasons = groupBy(unknown, ({ network, problem }) => JSON.stringify([network, problem]));
  return [...reasons.values()].map(those => {
    const [first] = those;
    const more = those.length > 1 ? ` and ${those.length - 1} more` : '';
    const found = `container "${first?.containerId}" on network "${first?.network}"${more} cannot be checked: ${first?.problem}`;
    if (first?.unchecked) return { id: ID, severity: 'info', found };
    return { id: ID, severity: 'unexamined', found, mend: 'catena repair --dry-run' };
  });
}
