// Do the attached containers still have what their ADD gave them?
import { type AttachmentCheck, checkAttachments } from '../../chain/records/check-attachments.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { type Finding, fine, type NodeView } from '../finding.ts';

const ID = 'attachments';

/** A node may have hundreds of attachments, and a plugin may hang. */
const BUDGET_MS = 30_000;
const CALL_DEADLINE_MS = 10_000;

/**
 * Runs CHECK for every existing attachment, whichever runtime made it, with the configuration of its ADD.
 * @param journals state directories besides the runtime's own
 */
export async function examineAttachments(
  { facts }: Pick<NodeView, 'facts'>,
  journals: readonly string[],
  runtime: Runtime,
): Promise<readonly Finding[]> {
  if (process.getuid?.() !== 0)
    return [{ id: ID, severity: 'info', found: 'looking into containers requires root' }];
  const signal = AbortSignal.timeout(BUDGET_MS);
  const { onWarning: _, onPlugin: __, ...quiet } = runtime;
  const within = { ...quiet, deadlineMs: CALL_DEADLINE_MS, signal };
  const standing = await checkAttachments(undefined, journals, within);
  const known = new Set(facts.records().records.map(nameOf));
  const findings = standing.flatMap((one): Finding[] => {
    if (one.state !== 'broken' || signal.aborted) return [];
    const { network, containerId, ifname, problem } = one;
    const found = `interface "${ifname}" of container "${containerId}" on network "${network}" is not as its ADD left it: ${problem}`;
    const repair = `catena repair ${network}`;
    const mend = known.has(nameOf(one)) ? repair : `catena adopt ${network}; ${repair}`;
    return [{ id: ID, severity: 'error', found, mend }];
  });
  const late: Finding[] = signal.aborted
    ? [
        {
          id: ID,
          severity: 'warning',
          found: `not all attachments could be checked within ${BUDGET_MS / 1000} s`,
        },
      ]
    : [];
  if (findings.length || late.length) return [...findings, ...late];
  const sound = standing.filter(({ state }) => state === 'sound').length;
  const untold = standing.length - sound;
  return fine(ID, `${sound} are as their ADD left them${untold ? `, ${untold} cannot be checked` : ''}`);
}

function nameOf({
  network,
  containerId,
  ifname,
}: Pick<AttachmentCheck, 'network' | 'containerId' | 'ifname'>): string {
  return `${network}/${containerId}/${ifname}`;
}
