// What on disk, other than records, carries the name of an attachment to a network?
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { AttachmentId } from '../cni/attachment.ts';
import { isObject } from '../cni/json.ts';
import { backupDirsOf, type FindAbout, leaseDirsOf, type NetworkPlugins } from '../cni/network-plugins.ts';
import { namesIn } from '../files/names-in.ts';
import type { Holder } from '../ipam/holders.ts';
import { inspectLease } from '../ipam/inspect.ts';
import { tryListLeases } from '../ipam/lease-files.ts';
import type { Trace } from './trace.ts';

/** A lease of the network. */
export interface HeldLease {
  readonly address: string;
  readonly dir: string;
  readonly owner: AttachmentId;
  readonly trace: Trace;
}

/** Leases that name an attachment. Leases in the old format, which name only a container, are left to the plugin. */
export function listHeldLeases(
  list: NetworkPlugins,
  find: FindAbout,
  holders: ReadonlyMap<string, readonly Holder[]> | undefined,
): HeldLease[] {
  const witnesses = { holders, findRecord: () => undefined };
  return leaseDirsOf(list, find).flatMap(dir =>
    tryListLeases(dir).flatMap(address => {
      const lease = inspectLease(dir, address, witnesses);
      const { containerId, ifname } = lease?.owner ?? {};
      if (!lease || !containerId || ifname === undefined) return [];
      const owner = { network: list.name, containerId, ifname };
      const evidence = lease.state === 'unused' ? 'unused' : 'used';
      const what = `lease of ${address} in "${dir}"`;
      const why = lease.state === 'new' ? 'it was written less than a minute ago' : (lease.evidence[0] ?? '');
      return [{ address, dir, owner, trace: { owner, what, evidence, why } }];
    }),
  );
}

/** Backups that name the network; the file name says which interface they belong to. */
export function listBackups(list: NetworkPlugins, find: FindAbout): Trace[] {
  return backupDirsOf(list, find).flatMap(dir =>
    namesIn(dir).flatMap(name => {
      const [, containerId, ifname] = /^(.+)_(.+)\.json$/.exec(name) ?? [];
      if (!containerId || !ifname || networkIn(join(dir, name)) !== list.name) return [];
      const owner = { network: list.name, containerId, ifname };
      const why = 'it does not show whether the attachment exists';
      return [{ owner, what: `backup "${join(dir, name)}"`, evidence: 'silent', why }];
    }),
  );
}

function networkIn(file: string): unknown {
  try {
    const backup: unknown = JSON.parse(readFileSync(file, 'utf8'));
    return isObject(backup) ? backup.network : undefined;
  } catch {
    return undefined;
  }
}
