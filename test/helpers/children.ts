// Which processes has a process started?
import { namesIn, tryRead } from '../../src/files/read-file.ts';

/**
 * Ids of the processes that a process has started and that still run; none if it has ended.
 *
 * They are in the order in which each of its threads started them (proc(5), `children`). Their ids are not: the kernel begins
 * again at 300 after `pid_max`.
 */
export function childrenOf(pid: number): number[] {
  return namesIn(`/proc/${pid}/task`).flatMap(thread =>
    (tryRead(`/proc/${pid}/task/${thread}/children`) ?? '').split(' ').filter(Boolean).map(Number),
  );
}
