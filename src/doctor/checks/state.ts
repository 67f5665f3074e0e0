// Is the stored state readable and complete, is there room for more, and have containers what their ADD gave them?
import { statSync } from 'node:fs';
import type { Runtime } from '../../chain/run/runtime.ts';
import type { SegmentRunner } from '../../chain/run/segment.ts';
import { keyOf } from '../../cni/attachment.ts';
import { leaseDirsOf } from '../../cni/network-plugins.ts';
import { BLINDNESS } from '../../garbage/find-traced.ts';
import { ELSEWHERE, isElsewhere } from '../../journal/elsewhere.ts';
import type { AttachmentRecord } from '../../journal/record.ts';
import { findFlockHolder } from '../../sys/lock-holder.ts';
import { type AttachmentCheck, CHECK_BUDGET_MS, checkAll } from '../../watch/check-all.ts';
import { findGone } from '../../watch/collect-gone.ts';
import { deleteCommand, forgetCommand } from '../../watch/examine.ts';
import { type Check, type Finding, fine, groupBy, type NodeUser, type NodeView, ROOT } from '../finding.ts';
import { isDenied, isHidden } from '../readable.ts';

/** Unreadable records of attachments. */
export const damaged: Check = {
  id: 'state.damaged',
  run({ facts, stateDir }) {
    const { attachments, damaged } = facts.attachments();
    if (isHidden(stateDir)) return [unseen(this.id, `records in "${stateDir}"`)];
    if (damaged.length === 0) {
      const count = (what: 'cached' | 'record') => attachments.filter(one => one[what] !== undefined).length;
      return fine(this.id, `${count('cached')} results and ${count('record')} records, all readable`);
    }
    return damaged.map(({ message }): Finding => {
      if (isDenied(message)) return { id: this.id, severity: 'unexamined', found: message };
      const mend = 'delete the container, then remove the file';
      return { id: this.id, severity: 'error', found: message, mend };
    });
  },
};

/** Without space or permissions no record can be written, and an ADD that could not be rolled back is not begun. */
export const storage: Check = {
  id: 'state.storage',
  run(node) {
    const { stateDir, cacheDir, runDir, user = ROOT } = node;
    const leases = node.facts.networks().networks.flatMap(({ list }) => leaseDirsOf(list, node.findAbout));
    const dirs = [...new Set([stateDir, cacheDir, runDir, ...leases])];
    const problems = dirs.flatMap((dir): Finding[] => {
      const found = node.findStorageProblem(dir);
      if (found === undefined) return [];
      if (isDenied(found)) return [withoutRights(dir, found, user)];
      const mend = `df -h ${dir}; df -i ${dir}; findmnt -T ${dir}`;
      return [{ id: this.id, severity: 'error', found: `Cannot write to "${dir}": ${found}`, mend }];
    });
    return problems.length ? problems : fine(this.id, `${dirs.length} directories are writable`);
  },
};

/** Plugins usually run as root, so another user's missing permissions say nothing about them. */
function withoutRights(dir: string, found: string, { id }: NodeUser): Finding {
  if (id !== 0) return unseen(storage.id, `whether root can write to "${dir}"`);
  const mend = `ls -ld "${dir}"; findmnt -T "${dir}"`;
  return {
    id: storage.id,
    severity: 'error',
    found: `Cannot write to "${dir}" as user ${id}: ${found}`,
    mend,
  };
}

/** @param what is hidden from this user */
function unseen(id: string, what: string): Finding {
  return { id, severity: 'unexamined', found: `${what}: this user may not look there` };
}

/** Attachments that are neither complete nor removed. */
export const unsettled: Check = {
  id: 'state.unsettled',
  run({ facts, stateDir, ownNames }) {
    if (isHidden(stateDir)) return [unseen(this.id, `operations recorded in "${stateDir}"`)];
    const { attachments, unsettled } = facts.attachments();
    const say = ({ containerId, ifname, network }: AttachmentRecord, why: string) =>
      `container "${containerId}", interface "${ifname}", on network "${network}": ${why}`;
    const elsewhere = attachments.flatMap(({ record }): Finding[] => {
      if (record === undefined || !isElsewhere(record, process.env)) return [];
      return [{ id: this.id, severity: 'info', found: say(record, ELSEWHERE) }];
    });
    const findings = unsettled.map(({ record, why }): Finding => {
      // What a third-party plugin refuses again and again, no repair deletes.
      const isHopeless =
        record.attempts > 1 &&
        record.lastErrors.length > 0 &&
        record.lastErrors.every(({ link }) => link !== undefined && !ownNames.includes(link));
      const mend = isHopeless ? forgetCommand(record) : `catena repair ${record.network}`;
      return { id: this.id, severity: 'warning', found: say(record, why), mend };
    });
    const all = [...findings, ...elsewhere];
    return all.length ? all : fine(this.id, 'no operation is unfinished');
  },
};

/** Attachments whose namespace is gone and for which no runtime has called DEL. */
export const abandoned: Check = {
  id: 'state.abandoned',
  run({ facts, devices }) {
    const names = new Set(devices.map(({ name }) => name));
    const gone = findGone(facts.attachments().standing, process, () => names);
    if (gone.length === 0) return fine(this.id, 'the namespaces of all attachments exist');
    const groups = groupBy(gone, ({ one, isSure }) => `${one.id.network} ${isSure}`);
    return [...groups.values()].map((those): Finding => {
      const [{ network, isSure } = { network: '', isSure: false }] = those.map(({ one, isSure }) => {
        return { ...one.id, isSure };
      });
      const [what, their] = those.length === 1 ? ['attachment', 'its'] : ['attachments', 'their'];
      const which = `${those.length} ${what} of network "${network}"`;
      if (!isSure) {
        const found = `the namespace of ${which} is not visible here, but ${their} devices on the host are there`;
        return { id: this.id, severity: 'info', found };
      }
      const found = `${which} outlived ${their} namespace: the runtime did not run DEL`;
      return { id: this.id, severity: 'warning', found, mend: 'catena gc --gone' };
    });
  },
};

/** What carries the name of an attachment that nothing records and nothing uses: its ADD and DEL have both failed. */
export const garbage: Check = {
  id: 'state.garbage',
  run({ facts, held, user = ROOT }) {
    if (user.id !== 0) return [unseen(this.id, 'what attachments without a record have left')];
    const { attachments, damaged } = facts.attachments();
    if (damaged.length)
      return fine(this.id, 'not looked for: what nothing records may be in records that cannot be read');
    const recorded = attachments.map(({ known }) => known);
    const known = recorded.map(({ containerId, ifname }) => ({ containerID: containerId, ifname }));
    const keys = new Set(recorded.map(keyOf));
    const left = facts
      .networks()
      .networks.flatMap(({ list }) =>
        (held?.(list, known) ?? []).map(one => ({ network: list.name, ...one })),
      )
      .filter(one => !keys.has(keyOf(one)) && (one.inUse === undefined || one.inUse === BLINDNESS));
    if (left.length === 0) return fine(this.id, 'nothing is left of an attachment without a record');
    const blind = left.filter(({ inUse }) => inUse !== undefined);
    if (blind.length) return [unseen(this.id, 'whether what attachments without a record hold is in use')];
    return left.map(({ network, containerId, ifname, isNamed, traces }): Finding => {
      const more = traces.length > 1 ? ` and ${traces.length - 1} more` : '';
      const found = `container "${containerId}", interface "${ifname}", on network "${network}" has no record and is gone, but has left ${traces[0]}${more}`;
      const mend = deleteCommand({ network, containerId, ifname });
      return { id: this.id, severity: 'warning', found, ...(isNamed && { mend }) };
    });
  },
};

/** A lock that is held for a long time blocks every container. */
export const locks: Check = {
  id: 'state.locks',
  run(node) {
    if (isHidden(node.runDir)) return [unseen(this.id, `locks in "${node.runDir}"`)];
    const held = lockFilesOf(node).flatMap((path): Finding[] => {
      const file = statSync(path, { throwIfNoEntry: false });
      const holder = file && findFlockHolder(file);
      const found = `"${path}" is held by ${holder}; if this persists, containers wait for it`;
      return holder === undefined
        ? []
        : [{ id: this.id, severity: 'info', found, mend: 'check again in a while' }];
    });
    return held.length ? held : fine(this.id, 'no lock is held');
  },
};

/** A daemon has these as long as it runs; containers never wait for them. */
const SEATS = ['watch.lock', 'between.lock'];

function lockFilesOf({ runDir, facts, findAbout, list }: NodeView): string[] {
  const own = list(runDir)
    .filter(name => name.endsWith('.lock') && !SEATS.includes(name))
    .map(name => `${runDir}/${name}`);
  const leases = facts
    .networks()
    .networks.flatMap(({ list: network }) => leaseDirsOf(network, findAbout).map(dir => `${dir}/lock`));
  return [...own, ...new Set(leases)];
}

const ID = 'attachments';

/**
 * Runs CHECK for every existing attachment, whichever runtime made it, with the configuration of its ADD.
 * @param openSegments makes what runs one chain at a time
 */
export async function examineAttachments(
  { facts, pods, user = ROOT }: NodeView,
  runtime: Runtime,
  openSegments: () => SegmentRunner,
): Promise<readonly Finding[]> {
  // In a user namespace, root may enter the namespaces of its own containers, and no others.
  if (user.id !== 0 || (user.unknown !== undefined && pods === undefined))
    return [{ id: ID, severity: 'unexamined', found: 'whether containers have what their ADD gave them' }];
  const { standing } = facts.attachments();
  const checks = await checkAll(standing, runtime, { budgetMs: CHECK_BUDGET_MS, openSegments });
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
