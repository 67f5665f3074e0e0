// Which networks did a pod get, and where is that written down?
//
// The record is all that DEL needs. It is written before the first network is attached, loses each network when that
// one's own DEL has succeeded, and goes with the last.
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod/mini';
import { type Conflist, parseFrozen } from '../chain/conflist.ts';
import type { Attachment } from '../chain/runtime.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { describeIssue } from '../cni/json.ts';
import type { PlannedNetwork } from './plan.ts';

const RecordedNetwork = z.object({
  label: z.string(),
  network: z.string(),
  ifname: z.string(),
  /** The configuration, byte for byte as its ADD had it. */
  source: z.string(),
  args: z.array(z.tuple([z.string(), z.string()])),
  capabilityArgs: z.record(z.string(), z.unknown()),
  /** Its entry of the network status, once it is attached. */
  status: z.optional(z.looseObject({})),
});

/** One network of a pod, on record. */
export type RecordedNetwork = z.output<typeof RecordedNetwork>;

const KIND = 'catena-delegates-1';

const PodRecord = z.object({
  kind: z.literal(KIND),
  network: z.string(),
  containerId: z.string(),
  ifname: z.string(),
  netns: z.string(),
  /** Device and inode of the namespace: the same path may lead to another one later. */
  netnsId: z.string(),
  /** Where ADD found the plugins, and what their results are kept in. */
  pluginDirs: z.array(z.string()),
  cacheDir: z.string(),
  /** In order of ADD. */
  networks: z.array(RecordedNetwork),
});

/** What a runner did for one interface of one container. */
export type PodRecord = z.output<typeof PodRecord>;

/** What names a record: the attachment as the runtime knows it. */
export type PodKey = Pick<PodRecord, 'network' | 'containerId' | 'ifname'>;

/** A record of networks that are about to be attached. */
export function toRecord(
  key: PodKey & { readonly netns: string },
  networks: readonly PlannedNetwork[],
  { pluginDirs, cacheDir }: Pick<PodRecord, 'pluginDirs' | 'cacheDir'>,
): PodRecord {
  const { network, containerId, ifname, netns } = key;
  return {
    kind: KIND,
    network,
    containerId,
    ifname,
    netns,
    netnsId: netnsIdOf(netns),
    pluginDirs: [...pluginDirs],
    cacheDir,
    networks: networks.map(({ label, list, attachment }) => ({
      label,
      network: list.name,
      ifname: attachment.ifname,
      source: list.source,
      args: (attachment.args ?? []).map(([name, value]) => [name, value]),
      capabilityArgs: attachment.capabilityArgs ?? {},
    })),
  };
}

/**
 * A recorded network as it was called.
 * @param netns of today: it may be empty on DEL
 * @throws CniError 6, 7 when its configuration cannot be used
 */
export function recall(
  { containerId }: PodKey,
  { source, ifname, args, capabilityArgs }: RecordedNetwork,
  netns: string,
): { list: Conflist; attachment: Attachment } {
  return { list: parseFrozen(source), attachment: { containerId, netns, ifname, args, capabilityArgs } };
}

/** What identifies a namespace while it lives; empty when there is none at the path. */
export function netnsIdOf(path: string): string {
  const found = path === '' ? undefined : statSync(path, { throwIfNoEntry: false });
  return found === undefined ? '' : `${found.dev}:${found.ino}`;
}

/**
 * The record of a pod, undefined when there is none.
 * @throws CniError 6 when it is damaged, 5 when it cannot be read
 */
export function readRecord(dir: string, key: PodKey): PodRecord | undefined {
  return readFile(fileOf(dir, key));
}

/**
 * Writes a record beside its file, then renames it: nobody meets half of one.
 * @throws CniError 5
 */
export function writeRecord(dir: string, record: PodRecord): void {
  const file = fileOf(dir, record);
  const fresh = join(dir, `.${process.pid}-${performance.now()}.tmp`);
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    writeFileSync(fresh, JSON.stringify(record), { flag: 'wx', mode: 0o600 });
    renameSync(fresh, file);
  } catch (cause) {
    rmSync(fresh, { force: true });
    throw ioFailure('write', file, cause);
  }
}

/**
 * Removes a record; one that is not there is fine.
 * @throws CniError 5
 */
export function removeRecord(dir: string, key: PodKey): void {
  const file = fileOf(dir, key);
  try {
    rmSync(file, { force: true });
  } catch (cause) {
    throw ioFailure('remove', file, cause);
  }
}

/**
 * Every record in the directory, of whichever network. A damaged one hides no other.
 * @throws CniError 5 when the directory cannot be read; a missing one is empty
 */
export function listRecords(dir: string): { records: PodRecord[]; damaged: CniError[] } {
  const records: PodRecord[] = [];
  const damaged: CniError[] = [];
  for (const name of namesIn(dir)) {
    try {
      const record = readFile(join(dir, name));
      if (record) records.push(record);
    } catch (error) {
      if (!(error instanceof CniError)) throw error;
      damaged.push(error);
    }
  }
  return { records, damaged };
}

/** Neither a network's name nor a container's id can hold a comma. */
function fileOf(dir: string, { network, containerId, ifname }: PodKey): string {
  return join(dir, `${network},${containerId},${ifname}.json`);
}

function namesIn(dir: string): string[] {
  try {
    return readdirSync(dir)
      .filter(name => name.endsWith('.json') && !name.startsWith('.'))
      .sort();
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw ioFailure('list', dir, cause);
  }
}

function readFile(file: string): PodRecord | undefined {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw ioFailure('read', file, cause);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw damagedRecord(file, (cause as Error).message);
  }
  const parsed = z.safeParse(PodRecord, value, { reportInput: true });
  if (parsed.success) return parsed.data;
  throw damagedRecord(file, parsed.error.issues.map(describeIssue).join('; '));
}

function damagedRecord(file: string, problem: string): CniError {
  return new CniError(ErrorCode.decodingFailure, `Cannot read record of delegates "${file}": ${problem}`);
}

function ioFailure(action: string, path: string, cause: unknown): CniError {
  const text = `Cannot ${action} record of delegates "${path}": ${(cause as Error).message}`;
  return new CniError(ErrorCode.ioFailure, text, { cause });
}
