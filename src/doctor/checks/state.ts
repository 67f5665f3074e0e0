// Is the stored state readable and complete, and is there room for more?
import { statSync } from 'node:fs';
import { findReason } from '../../chain/records/recover.ts';
import { cacheFileOf } from '../../chain/records/result-cache.ts';
import { leaseDirsOf } from '../../cni/network-plugins.ts';
import { rangeUsesOf } from '../../ipam/range-use.ts';
import { findFlockHolder } from '../../sys/lock-holder.ts';
import { type Check, type Finding, fine, type NodeView } from '../finding.ts';
import { type NodeUser, ROOT } from '../user.ts';

/** Unreadable records of attachments. */
export const damaged: Check = {
  id: 'state.damaged',
  run({ facts }) {
    const cache = facts.results();
    const journal = facts.records();
    const problems = [...cache.damaged, ...journal.damaged];
    if (problems.length === 0) {
      return fine(
        this.id,
        `${cache.attachments.length} results and ${journal.records.length} records, all readable`,
      );
    }
    return problems.map(({ message }) => ({
      id: this.id,
      severity: 'error',
      found: message,
      mend: 'delete the container, then remove the file',
    }));
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
      if (/\b(EACCES|EPERM)\b/.test(found)) return [withoutRights(dir, found, user)];
      const mend = `df -h ${dir}; df -i ${dir}; findmnt -T ${dir}`;
      return [{ id: this.id, severity: 'error', found: `Cannot write to "${dir}": ${found}`, mend }];
    });
    return problems.length ? problems : fine(this.id, `${dirs.length} directories are writable`);
  },
};

/** Plugins usually run as root, so another user's missing permissions say little about them. */
function withoutRights(dir: string, found: string, { id }: NodeUser): Finding {
  const base = { id: storage.id, found: `Cannot write to "${dir}" as user ${id}: ${found}` };
  if (id === 0) return { ...base, severity: 'error', mend: `ls -ld "${dir}"; findmnt -T "${dir}"` };
  return {
    ...base,
    severity: 'warning',
    mend: 'run catena doctor as root, or as the user that runs containers',
  };
}

/** Attachments that are neither complete nor removed. */
export const unsettled: Check = {
  id: 'state.unsettled',
  run({ facts }) {
    const findings = facts.records().records.flatMap((record): Finding[] => {
      const why = findReason(record, process.env);
      if (why === undefined) return [];
      const found = `container "${record.containerId}", interface "${record.ifname}", on network "${record.network}": ${why}`;
      return [{ id: this.id, severity: 'warning', found, mend: `catena repair ${record.network}` }];
    });
    return findings.length ? findings : fine(this.id, 'no operation is unfinished');
  },
};

/** Attachments whose namespace is gone and for which no runtime has called DEL. */
export const abandoned: Check = {
  id: 'state.abandoned',
  run({ facts }) {
    const gone = facts
      .results()
      .attachments.filter(
        ({ netns }) => netns !== '' && statSync(netns, { throwIfNoEntry: false }) === undefined,
      );
    if (gone.length === 0) return fine(this.id, 'the namespaces of all attachments exist');
    const networks = [...new Set(gone.map(({ network }) => network))];
    return networks.map(network => {
      const count = gone.filter(one => one.network === network).length;
      const found = `${count} attachment${count === 1 ? '' : 's'} of network "${network}" outlived ${count === 1 ? 'its' : 'their'} namespace: the runtime did not run DEL`;
      return {
        id: this.id,
        severity: 'warning',
        found,
        mend: `catena gc ${network} --dry-run --valid <id>/<ifname>`,
      };
    });
  },
};

/** A lock that is held for a long time blocks every container. */
export const locks: Check = {
  id: 'state.locks',
  run(node) {
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

/** Ranges that are nearly full. */
export const pools: Check = {
  id: 'ipam.pools',
  run({ facts, findAbout }) {
    const ranges = facts.networks().networks.flatMap(({ list }) => rangeUsesOf(list, findAbout));
    const tight = ranges.filter(({ used, size }) => used >= size * NEARLY_FULL);
    if (tight.length === 0) return fine(this.id, `${ranges.length} address ranges, all with free addresses`);
    return tight.map(({ network, range, used, size }) => ({
      id: this.id,
      severity: used >= size ? 'error' : 'warning',
      found: `range ${range} of network "${network}" has ${used} of ${size} addresses in use`,
      mend: `catena ipam ls ${network}`,
    }));
  },
};

/** When a network last gave a container its interface. */
export const lastSuccess: Check = {
  id: 'networks.last-success',
  run({ cacheDir, facts }) {
    const newest = new Map<string, number>();
    const times = [
      ...facts.results().attachments.map(one => [one.network, cacheFileOf(cacheDir, one)] as const),
      ...facts.records().records.map(({ network, file }) => [network, file] as const),
    ];
    for (const [network, file] of times) {
      const at = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
      newest.set(network, Math.max(at, newest.get(network) ?? 0));
    }
    const { networks } = facts.networks();
    if (networks.length === 0) return fine(this.id, 'no network is configured');
    return networks.map(({ list: { name } }) => {
      const at = newest.get(name);
      const found = at
        ? `network "${name}": last recorded attachment at ${new Date(at).toISOString()}`
        : `network "${name}": no recorded attachment`;
      return { id: this.id, severity: 'info', found };
    });
  },
};

const NEARLY_FULL = 0.9;

function lockFilesOf({ runDir, facts, findAbout, list }: NodeView): string[] {
  const own = list(runDir)
    .filter(name => name.endsWith('.lock'))
    .map(name => `${runDir}/${name}`);
  const leases = facts
    .networks()
    .networks.flatMap(({ list: network }) => leaseDirsOf(network, findAbout).map(dir => `${dir}/lock`));
  return [...own, ...new Set(leases)];
}
