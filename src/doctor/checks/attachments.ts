// Do the attached containers still have what their ADD gave them?

import type { AttachmentCheck } from '../../chain/records/check-attachments.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import type { SegmentRunner } from '../../chain/run/segment.ts';
import { keyOf } from '../../cni/attachment.ts';
import { checkAll } from '../../node/check-all.ts';
import { attachmentLister, type WatchedAttachment } from '../../watch/attachments.ts';
import { commandsFor } from '../../watch/commands.ts';
import { type Finding, fine, type NodeView } from '../finding.ts';
import { groupBy } from '../group.ts';
import { ROOT } from '../user.ts';

const ID = 'attachments';

/** How CHECK is called. */
export interface ExamineOptions {
  /** State directories besides the runtime's own. */
  readonly journals: readonly string[];
  readonly runtime: Runtime;
  /** Makes what runs one chain at a time. */
  readonly openSegments: () => SegmentRunner;
}

/** Runs CHECK for every existing attachment, whichever runtime made it, with the configuration of its ADD. */
export async function examineAttachments(
  { stateDir, cacheDir, devices, pods, user = ROOT }: NodeView,
  { journals, runtime, openSegments }: ExamineOptions,
): Promise<readonly Finding[]> {
  // In a user namespace, root may enter the namespaces of its own containers, and no others.
  if (user.id !== 0 || (user.unknown !== undefined && pods === undefined))
    return [{ id: ID, severity: 'unexamined', found: 'whether containers have what their ADD gave them' }];
  const { onWarning: _, onPlugin: __, ...quiet } = runtime;
  const checks = await checkAll(journals, quiet, openSegments);
  const known = new Map(
    attachmentLister([stateDir, ...journals], cacheDir)().map(one => [one.key, one] as const),
  );
  const names = new Set(devices.map(({ name }) => name));
  const findings = [
    ...checks.flatMap(one => (one.state === 'broken' ? [toFinding(one, known.get(keyOf(one)))] : [])),
    ...describeUnknown(checks),
  ];
  const sound = checks.filter(({ state }) => state === 'sound').length;
  return findings.length ? findings : fine(ID, `${sound} are as their ADD left them`);

  function toFinding(one: AttachmentCheck, record: WatchedAttachment | undefined): Finding {
    const { network, containerId, ifname, problem } = one;
    const found = `interface "${ifname}" of container "${containerId}" on network "${network}" is not as its ADD left it: ${problem}`;
    const attachment = { network, containerId, ifname };
    return { id: ID, severity: 'error', found, mend: mendFor(one, record), attachment };
  }

  /** `repair` puts back rules, addresses and routes, but no devices. */
  function mendFor({ network }: AttachmentCheck, one: WatchedAttachment | undefined): string {
    const repair = `catena repair ${network}`;
    if (one === undefined) return repair;
    const isOwn = one.recorded?.stateDir === stateDir;
    if (one.devices.some(name => !names.has(name)))
      return commandsFor(isOwn ? one : { ...one, recorded: undefined });
    return one.recorded === undefined ? `catena adopt ${network}; ${repair}` : repair;
  }
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
