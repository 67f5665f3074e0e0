// Where does a candidate lie while it is examined, alone and under the name that it is to have?
import { chmodSync, constants, copyFileSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isRunning, thisProcess } from '../../files/process-id.ts';

/**
 * Copies an executable into a directory of its own for as long as the work takes. Executables with many names do what their
 * name says, and what lies beside one is not beside it when it is installed. Copies of processes that were killed go.
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
    // Another user's namespace is to reach it, too.
    for (const path of [dir, copy]) chmodSync(path, 0o755);
    return await work(copy);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const PREFIX = 'catena-swap-';
const NAME = /^catena-swap-(\d+)-(\d*)-(\d*)-/;

/** A process id namespace is `pid:[4026531836]`: its number will do for the name of a file. */
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
