// How is what was there before tuning kept until DEL?
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { fileFailure } from '../../src/files/failure.ts';
import { putFile } from '../../src/files/put-file.ts';
import { removeFile } from '../../src/files/remove-file.ts';
import { isGivenUp } from '../../src/files/unfinished.ts';
import { DEFAULT_DATA_DIR } from './config.ts';
import { isSysctlPath } from './sysctl-key.ts';

/** Values before the first ADD; only what was to be changed. The keys up to `txQLen` are the reference's. */
export const Backup = z.looseObject({
  mac: z.optional(z.string()),
  promisc: z.optional(z.boolean()),
  mtu: z.optional(z.int()),
  allmulti: z.optional(z.boolean()),
  txQLen: z.optional(z.int()),
  /** Ours alone: name of the network, by which GC knows whose file it is. The reference passes it by. */
  network: z.optional(z.string()),
  /** Ours alone, and absent when no sysctl was set: value by path below /proc/sys. The reference passes it by. */
  sysctl: z.optional(z.record(z.string(), z.string())),
});
export type Backup = z.output<typeof Backup>;

/** The file of one attachment; an empty directory means the default. */
export function backupPathOf(dataDir: string | undefined, containerId: string, ifname: string): string {
  return join(dataDir || DEFAULT_DATA_DIR, `${containerId}_${ifname}.json`);
}

/**
 * The backup in the file; undefined when there is none, or something else.
 * @throws CniError 5 when it cannot be read: what it says may still be needed
 */
export function findBackup(path: string): Backup | undefined {
  const text = readIfThere(path);
  if (text === undefined) return undefined;
  try {
    const parsed = z.safeParse(Backup, JSON.parse(text));
    return parsed.success ? withinNet(parsed.data) : undefined;
  } catch {
    return undefined;
  }
}

/** Sysctls as ADD writes them down. DEL runs as root, and must not write elsewhere because somebody changed the file. */
function withinNet({ sysctl, ...backup }: Backup): Backup {
  if (sysctl === undefined) return backup;
  const own = Object.entries(sysctl).filter(([path]) => isSysctlPath(path));
  return own.length ? { ...backup, sysctl: Object.fromEntries(own) } : backup;
}

/** Writes the file, in one step; what the reference knows is byte for byte as it would write it. */
export function writeBackup(path: string, backup: Backup): void {
  putFile(path, renderBackup(backup), { what: 'backup', unfinished: unfinishedOf(path) });
}

/**
 * Files of attachments to a network that are not valid any more, in a directory that may not exist. Those that name no
 * network are nobody's that could be known: the reference made them, or a release of ours before the key.
 * @param valid paths that stay
 */
export function findStaleBackups(
  dataDir: string | undefined,
  network: string,
  valid: ReadonlySet<string>,
): string[] {
  const directory = dataDir || DEFAULT_DATA_DIR;
  const paths = namesIn(directory).flatMap(name => {
    // What an ADD could not finish counts as that attachment's.
    const [, finished] = /^(.+_.+\.json)(?:\.new)?$/.exec(name) ?? [];
    return finished === undefined || valid.has(join(directory, finished)) ? [] : [join(directory, name)];
  });
  return paths.filter(path => {
    const backup = findBackup(path);
    // Half of a file that nobody will finish is of no network.
    return backup ? backup.network === network : !path.endsWith('.json') && isGivenUp(path);
  });
}

/** Takes the file away, and what an ADD that was killed left of it; an absent one is fine. */
export function removeBackup(path: string): void {
  removeFile(unfinishedOf(path), 'backup');
  removeFile(path, 'backup');
}

/** The older values win, but for the network: an ADD that is repeated finds the first one's work, not the original. */
export function mergeBackups(older: Backup, newer: Backup): Backup {
  const sysctls = { ...newer.sysctl, ...older.sysctl };
  const { mac, promisc, mtu, allmulti, txQLen, network: _n, sysctl: _s, ...unknown } = { ...newer, ...older };
  const network = newer.network ?? older.network;
  return {
    ...(mac === undefined ? {} : { mac }),
    ...(promisc === undefined ? {} : { promisc }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(allmulti === undefined ? {} : { allmulti }),
    ...(txQLen === undefined ? {} : { txQLen }),
    ...(network === undefined ? {} : { network }),
    ...unknown,
    ...(Object.keys(sysctls).length ? { sysctl: sysctls } : {}),
  };
}

/** JSON with an indent of one space; keys in the order of the schema. */
export function renderBackup(backup: Backup): string {
  return JSON.stringify(mergeBackups({}, backup), null, 1);
}

/** Known to DEL without a look at the directory, which holds the files of all containers. */
function unfinishedOf(path: string): string {
  return `${path}.new`;
}

function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch (cause) {
    if ((cause as { code?: string }).code === 'ENOENT') return [];
    throw new Error(`Cannot look for backups: ${(cause as Error).message}`, { cause });
  }
}

function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    const { code = '' } = cause as NodeJS.ErrnoException;
    if (['ENOENT', 'ENOTDIR', 'EISDIR'].includes(code)) return undefined;
    throw fileFailure('read backup', path, cause);
  }
}
