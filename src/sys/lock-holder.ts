// Which process holds a lock that we are waiting for?
import { readFileSync, type Stats } from 'node:fs';

/**
 * Describes the process that holds the flock(2) of a file: `process 4711 (host-local)`. Undefined when the lock is free
 * again, or when this process cannot see the holder, as in another PID namespace.
 */
export function findFlockHolder({ dev, ino }: Pick<Stats, 'dev' | 'ino'>): string | undefined {
  const rows = parseLocks(tryRead('/proc/locks') ?? '').filter(lock => lock.ino === ino);
  // Overlay file systems report another device here than stat does.
  const lock = rows.find(row => row.device === renderDevice(dev)) ?? rows[0];
  if (lock === undefined || lock.pid <= 0) return undefined;
  const name = tryRead(`/proc/${lock.pid}/comm`)?.trim();
  return name === undefined ? undefined : `process ${lock.pid} (${name})`;
}

interface HeldLock {
  readonly pid: number;
  readonly device: string;
  readonly ino: number;
}

/** `1: FLOCK  ADVISORY  WRITE 4711 fd:01:12345 0 EOF`; a line with an arrow is a waiting process. */
function parseLocks(text: string): HeldLock[] {
  return Array.from(
    text.matchAll(/^\d+: FLOCK +\S+ +WRITE +(-?\d+) +([\da-f]+:[\da-f]+):(\d+) /gm),
    found => {
      const [, pid, device = '', ino] = found;
      return { pid: Number(pid), device, ino: Number(ino) };
    },
  );
}

/** linux/kdev_t.h, as glibc packs it into st_dev. */
function renderDevice(dev: number): string {
  const bits = BigInt(dev);
  const major = ((bits >> 8n) & 0xfffn) | ((bits >> 32n) & 0xfffff000n);
  const minor = (bits & 0xffn) | ((bits >> 12n) & 0xffffff00n);
  return [major, minor].map(part => part.toString(16).padStart(2, '0')).join(':');
}

/** As `files/` has it; this folder imports nothing of ours. */
function tryRead(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}
