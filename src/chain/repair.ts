// What was taken away from attachments behind their links' backs, and what of it can be put back?
import { REPAIR_VARIABLE } from '../cni/env.ts';
import { type CniError, toCniError } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';
import { atLeast, SINCE } from '../cni/version.ts';
import { type Claim, claimRecord } from '../journal/claim.ts';
import { compareNetns } from '../journal/netns-identity.ts';
import type { AttachmentRecord } from '../journal/record.ts';
import { listRecords } from '../journal/store.ts';
import { acceptResult } from './accept-result.ts';
import type { AttachmentId } from './cache-record.ts';
import type { Conflist } from './conflist.ts';
import { findFrozen } from './frozen.ts';
import { findCached, toKnown } from './known.ts';
import { IGNORED, openLinks, type ReadReply } from './links.ts';
import { findReason, type Recovery, recover } from './recover.ts';
import { buildRequest } from './request.ts';
import { writeAttachment } from './result-cache.ts';
import type { Attachment, Runtime } from './runtime.ts';
import { withRecordedDirs } from './tear-down.ts';

/** What is repaired, and by which means. */
export interface RepairScope {
  /** Every network unless given. */
  readonly network?: string;
  /** Only look: links get CHECK and nothing else. */
  readonly dryRun?: boolean;
  /**
   * Run ADD again of chained links that do not know how to repair. Most only put rules there; but what theirs does is known
   * to nobody but whoever chose it.
   */
  readonly foreign?: boolean;
}

/** How one link of an attachment is doing. */
export interface LinkCondition {
  readonly link: string;
  readonly index: number;
  /** `sound`: CHECK passes. `mended`: it does since something was put back. `broken`: it does not. */
  readonly state: 'sound' | 'mended' | 'broken';
  /** What CHECK said at first. */
  readonly problem?: string;
  /** What it says still. */
  readonly error?: CniError;
}

/** How an attachment is doing. */
export interface Condition extends AttachmentId {
  /** `skipped`: nobody asked its links. */
  readonly state: LinkCondition['state'] | 'skipped';
  /** Why it was skipped, or why none of its links could be asked. */
  readonly why?: string;
  readonly links: readonly LinkCondition[];
  /** libcni's record of it was gone, and is there again. */
  readonly cacheWritten?: boolean;
}

/** What a repair found and did. */
export interface RepairReport {
  /** Attachments that had to be taken down: what a crash left, and DELs that failed. */
  readonly recovered: readonly Recovery[];
  readonly attachments: readonly Condition[];
  /** Records that nobody can read. */
  readonly damaged: readonly CniError[];
}

/**
 * Takes down what is not settled, then has every link of every recorded attachment check its part and, where that fails,
 * put back what is missing: rules, elements, addresses of the host, traffic control, sysctls, leases. The container's
 * interface stays, and so do its connections. Where the first link stays broken, nothing is put back for the others.
 * @throws CniError 5 when the journal cannot be listed
 */
export async function repair(scope: RepairScope, runtime: Runtime): Promise<RepairReport> {
  const { network, dryRun = false } = scope;
  const { stateDir } = runtime;
  if (stateDir === undefined) return { recovered: [], attachments: [], damaged: [] };
  const recovered = dryRun
    ? listRecords(stateDir, network).records.flatMap(record => findRecovery(record, runtime))
    : await recover({ ...(network === undefined ? {} : { network }), all: true }, runtime);
  const { records, damaged } = listRecords(stateDir, network);
  const attachments: Condition[] = [];
  for (const record of records.filter(({ phase }) => phase === 'attached')) {
    if (runtime.signal?.aborted) break;
    if (findReason(record, runtime.env) === undefined)
      attachments.push(await repairOne(stateDir, record, scope, runtime));
  }
  return { recovered, attachments, damaged };
}

/** What a repair would take down: the attachment of the record, or nothing. */
export function findRecovery(record: AttachmentRecord, { env }: Pick<Runtime, 'env'>): Recovery[] {
  const { network, containerId, ifname } = record;
  const why = findReason(record, env);
  return why === undefined ? [] : [{ network, containerId, ifname, why }];
}

async function repairOne(
  stateDir: string,
  record: AttachmentRecord,
  scope: RepairScope,
  runtime: Runtime,
): Promise<Condition> {
  const { network, containerId, ifname } = record;
  const id = { network, containerId, ifname };
  const skipped = (why: string): Condition => ({ ...id, state: 'skipped', why, links: [] });
  const list = findFrozen(toKnown(record), runtime);
  const obstacle = findObstacle(record, list);
  if (list === undefined || obstacle !== undefined)
    return skipped(obstacle ?? 'its configuration cannot be used');
  let claim: Claim | undefined;
  try {
    // Nobody may take down what is put back this moment, and the other way round.
    const won = scope.dryRun ? undefined : claimRecord(stateDir, id, isAttached, 'REPAIR');
    if (won && 'holder' in won) return skipped(`process ${won.holder.pid} works on it`);
    if (!won && !scope.dryRun) return skipped('it has just been taken down');
    claim = won;
    const reaching = { ...withRecordedDirs(runtime, record), cacheDir: record.cacheDir };
    const links = await repairLinks(list, record, scope, reaching);
    const states = ['broken', 'mended'] as const;
    const state = states.find(one => links.some(link => link.state === one)) ?? 'sound';
    // Without it, somebody else may have taken the attachment down.
    const cacheWritten = !scope.dryRun && state !== 'broken' && ensureCached(record, reaching);
    return { ...id, state, links, ...(cacheWritten ? { cacheWritten } : {}) };
  } catch (error) {
    return { ...id, state: 'broken', why: toCniError(error).message, links: [] };
  } finally {
    claim?.leave();
  }
}

function isAttached({ phase }: AttachmentRecord): boolean {
  return phase === 'attached';
}

/** Why the links of an attachment are not asked. */
function findObstacle(record: AttachmentRecord, list: Conflist | undefined): string | undefined {
  const { netns, netnsIdentity } = record;
  const place = compareNetns(netns, netnsIdentity);
  if (place === 'gone') return `its namespace "${netns}" is gone: DEL takes it down`;
  if (place === 'other') return `"${netns}" is not the namespace of its ADD any more: DEL takes it down`;
  if (list?.disableCheck) return 'its list says "disableCheck"';
  if (list && !atLeast(list.version, SINCE.check))
    return `its list is of version ${list.version}, which has no CHECK: DEL and ADD make it anew`;
  return undefined;
}

async function repairLinks(
  list: Conflist,
  record: AttachmentRecord,
  scope: RepairScope,
  runtime: Runtime,
): Promise<LinkCondition[]> {
  const { result, containerId, netns, ifname, args, capabilityArgs, outcomes } = record;
  const attachment: Attachment = { containerId, netns, ifname, args, capabilityArgs };
  const prevResult = result && convertResult(result, list.version, 'recorded result');
  const repairing = { ...runtime, env: { ...(runtime.env ?? process.env), [REPAIR_VARIABLE]: '1' } };
  const links: LinkCondition[] = [];
  for (const [index, entry] of list.plugins.entries()) {
    const call = (how: Runtime) => () => callOne(list, 'CHECK', index, prevResult, attachment, how, IGNORED);
    const addAgain = async () => {
      const before = outcomes.find(one => one.index === index - 1)?.result;
      const read: ReadReply<JsonObject> = (stdout, link) => acceptResult(stdout, list.version, link);
      await callOne(list, 'ADD', index, before, attachment, runtime, read);
      await call(runtime)();
    };
    const link = { link: entry.type, index };
    const problem = await failureOf(call(runtime));
    if (problem === undefined) {
      links.push({ ...link, state: 'sound' });
      continue;
    }
    let error: CniError | undefined = problem;
    // What the others would put back leads to an interface that is not there.
    const isLost = scope.dryRun || links[0]?.state === 'broken';
    if (!isLost) error = await failureOf(call(repairing));
    // A first link would make a second interface.
    if (error && scope.foreign && !isLost && index > 0) error = await failureOf(addAgain);
    const found = { problem: problem.message, ...(error ? { error } : {}) };
    links.push({ ...link, state: error ? 'broken' : 'mended', ...found });
  }
  return links;
}

async function callOne<Reply>(
  list: Conflist,
  verb: 'CHECK' | 'ADD',
  index: number,
  prevResult: JsonObject | undefined,
  attachment: Attachment,
  runtime: Runtime,
  read: ReadReply<Reply>,
): Promise<void> {
  const entry = list.plugins[index];
  if (entry === undefined) return;
  const links = openLinks(list, verb, runtime, [index], read, attachment);
  try {
    await links.call(
      index,
      buildRequest(list, entry, { prevResult, capabilityArgs: attachment.capabilityArgs }),
    );
  } finally {
    links.close();
  }
}

async function failureOf(work: () => Promise<void>): Promise<CniError | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return toCniError(error);
  }
}

/** cnitool and others look there. */
function ensureCached(record: AttachmentRecord, runtime: Runtime): boolean {
  if (findCached(record, runtime) !== undefined) return false;
  writeAttachment(record.cacheDir, toKnown(record));
  return true;
}
