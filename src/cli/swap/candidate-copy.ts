// Where is a candidate while it is examined, alone and under its future name?
import { chmodSync, constants, copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isRunning, thisProcess } from '../../files/process-stat.ts';

/**
 * Copies an executable into a directory of its own while the work runs. Multi-call executables behave according to their name,
 * and files next to the candidate will not be next to it once it is installed. Copies left by killed processes are deleted.
 */
export async function withCopy<T>(
  candidate: string,
  name: string,
  work: (copy: string) => Promise<T>,
): Promise<T> {
  sweep();
  const dir = mkdtempSync(join(tmpdir(), `${PREFIX}${Object.values(namesOf(thisProcess())).join('-')}-`));
  try {
    const copy = join(dir, name);
    copyFileSync(candidate, copy, constants.COPYFILE_FICLONE);
    // It must be accessible from another user's namespace, too.
    for (const path of [dir, copy]) chmodSync(path, 0o755);
    return await work(copy);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const PREFIX = 'catena-swap-';
const NAME = /^catena-swap-(\d+)-(\d*)-(\d*)-/;

/** A PID namespace is `pid:[4026531836]`: the number is enough for a file name. */
function namesOf({ pid, start, pidns }: ReturnType<typeof thisProcess>) {
  return { pid: String(pid), start, pidns: pidns.replace(/\D/g, '') };
}

function sweep(): void {
  const own = thisProcess();
  for (const name of readdirSync(tmpdir())) {
    const [, pid = '', start = '', pidns] = NAME.exec(name) ?? [];
    if (pidns !== namesOf(own).pidns) continue;
    if (isRunning({ pid: Number(pid), start, pidns: own.pidns }) === false)
      rmSync(join(tmpdir(), name), { recursive: true, force: true });
  }
}
