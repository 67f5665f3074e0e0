// What on disk, other than records, carries the name of an attachment to a network?
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TracedNetwork } from '../chain/records/held-attachment.ts';
import type { Attachment } from '../cni/attachment.ts';
import { isObject } from '../cni/json.ts';
import type { Holder } from '../ipam/holders.ts';
import { inspectLease } from '../ipam/inspect.ts';
import { listLeases } from '../ipam/lease-files.ts';
import { DEFAULT_DATA_DIR } from '../ipam/lease-store.ts';
import type { Trace } from './trace.ts';

/** A lease of the network. */
export interface HeldLease {
  readonly address: string;
  readonly dir: string;
  readonly owner: Attachment;
  readonly trace: Trace;
}

/** Where tuning stores earlier values, shared with the reference. */
const BACKUP_DIR = '/run/cni/tuning';

/** Leases that name an attachment. Leases in the old format, which name only a container, are left to the plugin. */
export function listHeldLeases(
  list: TracedNetwork,
  holders: ReadonlyMap<string, readonly Holder[]> | undefined,
): HeldLease[] {
  const witnesses = { holders, findRecord: () => undefined };
  return leaseDirsOf(list).flatMap(dir =>
    namesIn(dir, listLeases).flatMap(address => {
      const lease = inspectLease(dir, address, witnesses);
      const { containerId, ifname } = lease?.owner ?? {};
      if (!lease || !containerId || ifname === undefined) return [];
      const owner = { network: list.name, containerId, ifname };
      const evidence = lease.state === 'unused' ? 'unused' : 'used';
      const what = `lease of ${address} in "${dir}"`;
      const why = lease.state === 'new' ? 'it was written a moment ago' : (lease.evidence[0] ?? '');
      return [{ address, dir, owner, trace: { owner, what, evidence, why } }];
    }),
  );
}

/** Backups that name the network; the file name says which interface they belong to. */
export function listBackups(list: TracedNetwork): Trace[] {
  return backupDirsOf(list).flatMap(dir =>
    namesIn(dir, readdirSync).flatMap(name => {
      const [, containerId, ifname] = /^(.+)_(.+)\.json$/.exec(name) ?? [];
      if (!containerId || !ifname || networkIn(join(dir, name)) !== list.name) return [];
      const owner = { network: list.name, containerId, ifname };
      const why = 'it does not tell who is behind it';
      return [{ owner, what: `backup "${join(dir, name)}"`, evidence: 'silent', why }];
    }),
  );
}

/** Lease directories of a network. */
export function leaseDirsOf({ name, plugins }: TracedNetwork): string[] {
  const dirs = plugins.flatMap(({ conf: { ipam } }) => {
    if (!isObject(ipam) || ipam.type !== 'host-local') return [];
    return join(typeof ipam.dataDir === 'string' && ipam.dataDir ? ipam.dataDir : DEFAULT_DATA_DIR, name);
  });
  return [...new Set(dirs)];
}

function backupDirsOf({ plugins }: TracedNetwork): string[] {
  const dirs = plugins.flatMap(({ conf: { type, dataDir } }) => {
    if (type !== 'tuning') return [];
    return typeof dataDir === 'string' && dataDir ? dataDir : BACKUP_DIR;
  });
  return [...new Set(dirs)];
}

function networkIn(file: string): unknown {
  try {
    const backup: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return isObject(backup) ? backup.network : undefined;
  } catch {
    return undefined;
  }
}

/** A directory that cannot be read counts as empty. */
export function namesIn(dir: string, list: (dir: string) => string[]): string[] {
  try {
    return list(dir);
  } catch {
    return [];
  }
}
