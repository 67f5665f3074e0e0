// Is a file one of our own executables?
//
// Ours are the Bun program that this process runs, under any name, and its front (plugins/front), which starts this very program.
import { type BigIntStats, readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CORE_NAME } from './core-name.ts';
import { statOf } from './find-plugin.ts';
import { FRONT, type Front } from './front-program.ts';

/**
 * True when executing the file would run the program of this process: it is the same file (device and inode), or a front of this
 * build with this program beside it. A front is recognised by its content, so copies count, and another program that was put
 * under one of our names never does. A file without a bit for execution is what no runtime can start, so it is not ours either.
 * @param stat of the file, if it was looked at just before
 */
export function isOwnExecutable(path: string, stat = statOf(path)): boolean {
  // A process never runs another program.
  own ??= identityOf(statOf('/proc/self/exe'));
  if (own === undefined || stat === undefined || (stat.mode & ANY_EXECUTE) === 0n) return false;
  return (
    identityOf(stat) === own || (isFrontFile(path, stat) && identityOf(statOf(coreBeside(path))) === own)
  );
}

const ANY_EXECUTE = 0o111n;
let own: string | undefined;

/** The same question for one run of a chain: each file is looked at once, however many plugins and segments name it. */
export function ownExecutables(): typeof isOwnExecutable {
  const known = new Map<string, boolean>();
  return (path, stat) => {
    const isOwn = known.get(path) ?? isOwnExecutable(path, stat);
    known.set(path, isOwn);
    return isOwn;
  };
}

/** Whether the file is the front of this build, whatever stands beside it. */
export function isFront(path: string): boolean {
  const stat = statOf(path);
  return stat !== undefined && isFrontFile(path, stat);
}

function isFrontFile(path: string, stat: BigIntStats): boolean {
  if (FRONT === undefined || Number(stat.size) !== FRONT.bytes) return false;
  const version = `${stat.dev}:${stat.ino}:${stat.mtimeNs}:${stat.ctimeNs}`;
  const known = compared.get(version);
  if (known !== undefined) return known;
  const isSame = digestOf(path, FRONT) === FRONT.sha256;
  compared.set(version, isSame);
  return isSame;
}

/** Fronts that were read, by what changes with their content. A process meets a handful. */
const compared = new Map<string, boolean>();

/** The Bun program that a front executes: the one in the directory of the file itself, whatever link it was found by. */
export function coreBeside(path: string): string {
  return join(dirname(realpathSync(path)), CORE_NAME);
}

/**
 * The program that runs when the file is executed: the Bun program beside it for a front of any build, otherwise the file itself.
 * A front is a small file that contains the name of that program.
 */
export function programOf(path: string): string {
  const { size = 0n } = statOf(path) ?? {};
  const core = size > 0n && size <= MOST_OF_A_FRONT ? coreBeside(path) : path;
  const isCore = core !== path && statOf(core) !== undefined;
  return isCore && readFileSync(path).includes(CORE_NAME) ? core : path;
}

const MOST_OF_A_FRONT = 1 << 20;

/** Undefined for a file that can only be executed, or was just removed. */
function digestOf(path: string, front: Front): string | undefined {
  try {
    return front.digestOf(readFileSync(path));
  } catch {
    return undefined;
  }
}

function identityOf(stat: BigIntStats | undefined): string | undefined {
  return stat && `${stat.dev}:${stat.ino}`;
}
