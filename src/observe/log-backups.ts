// What happens to a full log file and to its predecessors?
//
// Many processes append to the file, each only briefly, and no process keeps it open. So a full file is renamed with the time in
// its name, as multus's log is (`multus-2026-11-21T16-00-00.000.log`, with `.gz` once it is compressed).
import {
  createReadStream,
  createWriteStream,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs';
import { basename, dirname, extname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';

/** When a log file is full, and which predecessors are kept. */
interface BackupLimits {
  readonly maxBytes: number;
  /** Number of files besides the current one; 0 for all. */
  readonly maxBackups: number;
  /** Days that they are kept; 0 for ever. */
  readonly maxAgeDays: number;
}

const DAY_MS = 24 * 60 * 60 * 1000;
const PACKED = '.gz';
/** A file being compressed; a killed process leaves it behind. */
const PART = '.part';
const STALE_MS = 10 * 60 * 1000;

/**
 * Renames the file if it is full, and removes predecessors that are too old or too many.
 * @throws Error of the file system
 */
export function boundLog(path: string, { maxBytes, maxBackups, maxAgeDays }: BackupLimits): void {
  const { size = 0 } = statSync(path, { throwIfNoEntry: false }) ?? {};
  if (size >= maxBytes) renameSync(path, freeName(path, Date.now()));
  const backups = listBackups(path);
  const oldest = maxAgeDays === 0 ? 0 : Date.now() - maxAgeDays * DAY_MS;
  const gone = backups.filter(({ at }, age) => at < oldest || (maxBackups !== 0 && age >= maxBackups));
  for (const { file } of gone) rmSync(file, { force: true });
}

/**
 * Compresses the remaining predecessors one after the other, without blocking the caller.
 * @throws Error of the file system; files not yet compressed are left unchanged
 */
export async function packBackups(path: string): Promise<void> {
  removeStaleParts(path);
  for (const { file } of listBackups(path)) if (!file.endsWith(PACKED)) await pack(file);
}

async function pack(file: string): Promise<void> {
  const { createGzip } = await import('node:zlib');
  const part = `${file}${PACKED}${PART}`;
  const source = createReadStream(file);
  try {
    // If two processes compress the same file, the second one finds that the name exists.
    await pipeline(source, createGzip(), createWriteStream(part, { flags: 'wx', mode: 0o600 }));
    const { size, atime, mtime } = statSync(file);
    // A process that had opened the file before it was renamed has appended a line.
    if (size !== source.bytesRead) return rmSync(part);
    utimesSync(part, atime, mtime);
    renameSync(part, file + PACKED);
    rmSync(file);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    rmSync(part, { force: true });
    // Another process removed it as too old or too many.
    if (code !== 'ENOENT') throw error;
  }
}

/** The youngest first: by when it was renamed, in milliseconds. */
function listBackups(path: string) {
  const { dir, stem, ending } = partsOf(path);
  return readdirSync(dir)
    .flatMap(name => {
      const bare = name.endsWith(PACKED) ? name.slice(0, -PACKED.length) : name;
      if (!bare.startsWith(`${stem}-`) || !bare.endsWith(ending)) return [];
      const at = parseTime(bare.slice(stem.length + 1, bare.length - ending.length));
      return at === undefined ? [] : [{ file: join(dir, name), at }];
    })
    .sort((a, b) => b.at - a.at);
}

function removeStaleParts(path: string): void {
  const { dir, stem } = partsOf(path);
  for (const name of readdirSync(dir)) {
    if (!name.startsWith(`${stem}-`) || !name.endsWith(PACKED + PART)) continue;
    const { mtimeMs = Date.now() } = statSync(join(dir, name), { throwIfNoEntry: false }) ?? {};
    if (Date.now() - mtimeMs > STALE_MS) rmSync(join(dir, name), { force: true });
  }
}

function freeName(path: string, now: number): string {
  const { dir, stem, ending } = partsOf(path);
  const name = join(dir, `${stem}-${renderTime(now)}${ending}`);
  return statSync(name, { throwIfNoEntry: false }) ? freeName(path, now + 1) : name;
}

function partsOf(path: string): { dir: string; stem: string; ending: string } {
  const ending = extname(path);
  return { dir: dirname(path), stem: basename(path, ending), ending };
}

/** `2026-11-21T16-00-00.000`, in UTC. */
function renderTime(ms: number): string {
  return new Date(ms).toISOString().replaceAll(':', '-').slice(0, -1);
}

function parseTime(text: string): number | undefined {
  const [, day, hour, minute, rest] = /^(\d{4}-\d\d-\d\dT)(\d\d)-(\d\d)-(\d\d\.\d{3})$/.exec(text) ?? [];
  if (day === undefined) return undefined;
  const ms = Date.parse(`${day}${hour}:${minute}:${rest}Z`);
  return Number.isNaN(ms) ? undefined : ms;
}
