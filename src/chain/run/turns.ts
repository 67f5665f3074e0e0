// Which operations of this process must not run at the same time?
import { AsyncLocalStorage } from 'node:async_hooks';
import { type ChainRuntime, cacheDirOf } from './runtime.ts';

type Place = Pick<ChainRuntime, 'cacheDir' | 'env' | 'onTurn'>;

/**
 * Does the work when nothing else runs for the container, and no GC (SPEC "Lifecycle & Ordering": no parallel
 * operations for one container, GC runs alone). Work for one container is done in order of arrival; other
 * containers do not wait. Work requested from within such work is part of it and does not wait.
 *
 * This holds within this process only: processes that share a cache must coordinate by other means.
 */
export function inTurn<T>(containerId: string, place: Place, work: () => Promise<T>): Promise<T> {
  const queue = queueOf(place);
  if (isPartOf(queue, containerId)) return work();
  const { containers } = queue;
  const turn = after(
    [containers.get(containerId), queue.alone],
    { queue, containerId, over: false },
    place,
    work,
  );
  containers.set(containerId, turn.settled);
  turn.settled.then(() => {
    if (containers.get(containerId) === turn.settled) containers.delete(containerId);
  });
  return turn.result;
}

/** Does the work when nothing else runs on the cache; later work waits for it. */
export function alone<T>(place: Place, work: () => Promise<T>): Promise<T> {
  const queue = queueOf(place);
  if (isPartOf(queue, undefined)) return work();
  const turn = after(
    [...queue.containers.values(), queue.alone],
    { queue, containerId: undefined, over: false },
    place,
    work,
  );
  queue.alone = turn.settled;
  turn.settled.then(() => {
    if (queue.alone === turn.settled) queue.alone = undefined;
  });
  return turn.result;
}

/** What runs or waits on one cache: the last operation of each container, and the last one that must run alone. */
interface Queue {
  readonly containers: Map<string, Promise<void>>;
  alone: Promise<void> | undefined;
}

/** A running operation; without container id, one that runs alone. */
interface Turn {
  readonly queue: Queue;
  readonly containerId: string | undefined;
  over: boolean;
}

const queues = new Map<string, Queue>();
const current = new AsyncLocalStorage<Turn>();

function queueOf(place: Place): Queue {
  const dir = cacheDirOf(place);
  const queue = queues.get(dir) ?? { containers: new Map(), alone: undefined };
  queues.set(dir, queue);
  return queue;
}

function isPartOf(queue: Queue, containerId: string | undefined): boolean {
  const turn = current.getStore();
  if (turn === undefined || turn.over || turn.queue !== queue) return false;
  return turn.containerId === undefined || containerId === undefined || turn.containerId === containerId;
}

function after<T>(
  others: readonly (Promise<void> | undefined)[],
  turn: Turn,
  { onTurn }: Place,
  work: () => Promise<T>,
): { result: Promise<T>; settled: Promise<void> } {
  const waiting = others.filter(other => other !== undefined);
  const asked = performance.now();
  const begin = () => {
    onTurn?.(performance.now() - asked);
    return current.run(turn, work);
  };
  const result = waiting.length ? Promise.all(waiting).then(begin) : begin();
  const end = () => {
    turn.over = true;
  };
  return { result, settled: result.then(end, end) };
}
