// Which locks did processes leave that are dead, and nothing of which runs any longer?
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { lockScopeOf, notesDirs, runDir } from '../cni/directories.ts';
import { isRunning, thisProcess } from '../files/process-stat.ts';
import { namesIn } from '../files/read-file.ts';
import { type LockPlace, OPERATION, ownersIn, takeLock } from './lock.ts';
import { hasOrphans } from './orphan-processes.ts';

/** Removes what processes left that died while they prepared a lock. */
export function sweepLocks(env: LockPlace['env']): void {
  const { locks } = notesDirs(runDir(env));
  for (const name of namesIn(locks).filter(one => one.startsWith('.'))) {
    const [, pid, start = ''] = OPERATION.exec(name.slice(1)) ?? [];
    // A living process whose directory is gone makes it again, so one that cannot be seen loses nothing.
    if (isRunning({ ...thisProcess(), pid: Number(pid), start }) !== true)
      rmSync(join(locks, name), { recursive: true, force: true });
  }
}

/** Removes the locks of dead processes of which nothing runs any longer. Those of attachments that are settled are not met otherwise. */
export function sweepDeadLocks(place: LockPlace): void {
  const root = join(notesDirs(runDir(place.env)).locks, lockScopeOf(place.stateDir));
  for (const network of namesIn(root)) {
    for (const name of namesIn(join(root, network))) {
      const key = join(network, name);
      const owners = ownersIn(join(root, key), place.env);
      if (owners.length === 0 || owners.some(({ isLiving }) => isLiving)) continue;
      if (hasOrphans(owners.map(({ runner }) => runner))) continue;
      const lock = takeLock(place, key, 'repair');
      if (!('holder' in lock)) lock.release();
    }
  }
}
