// Which operations of this process must not run at the same time?
//
// SPEC "Lifecycle & Ordering" forbids parallel operations for one container, and GC beside other operations of its network, because
// no list of valid attachments can name what is being added. Ours names what has begun (listRunning), so it is enough that nothing
// begins while plugins collect. No more than that is excluded: a plugin may hang for minutes, and neither other networks
// nor GC must wait for it. An operation that waits holds nothing, so no two can wait for each other.
import { AsyncLocalStorage } from 'node:async_hooks';
import { join } from 'node:path';
import { type AttachmentId, digestOf } from '../../cni/attachment.ts';
import { cacheDirOf, runDir } from '../../cni/directories.ts';
import { tryAgainLater } from '../../cni/errors.ts';
import type { AttachmentKey } from '../../cni/schemas.ts';
import { pause } from '../../wait.ts';
import type { ChainRuntime } from './runtime.ts';

type QueueRuntime = Pick<ChainRuntime, 'cacheDir' | 'env' | 'onTurn'>;

/**
 * Does the work when nothing else runs for the container, and plugins of the network do not collect. Work for one container is
 * done in order of arrival; other containers do not wait. Work requested from within work for the container is part of it and
 * does not wait.
 *
 * This holds within this process only: processes that share a cache must coordinate by other means.
 */
export function inTurn<T>(
  { network, containerId, ifname }: AttachmentId,
  place: QueueRuntime,
  work: () => Promise<T>,
): Promise<T> {
  const within = current.getStore();
  const queue = queueOf(place);
  if (within?.containerId === containerId && queue.running.has(within)) return work();
  return waitFor({ network, containerId, ifname }, queue, place, work);
}

/** Does the work when no other work of this kind is done for the network; other work on it does not begin until it has ended. */
export function withNoneBegun<T>(network: string, place: QueueRuntime, work: () => Promise<T>): Promise<T> {
  return waitFor({ network, containerId: undefined, ifname: '' }, queueOf(place), place, work);
}

/** The attachments to the network that operations of this process work on. They need not be on record yet. */
export function listRunning(network: string, place: QueueRuntime): AttachmentKey[] {
  return [...queueOf(place).running].flatMap(({ network: of, containerId, ifname }) =>
    of === network && containerId !== undefined ? [{ containerID: containerId, ifname }] : [],
  );
}

/** What runs and what waits on one cache, in order of arrival. */
interface Queue {
  readonly running: Set<Turn>;
  readonly waiting: Turn[];
}

/** An operation; without container id, the plugins' GC of the network. */
interface Turn {
  readonly network: string;
  readonly containerId: string | undefined;
  readonly ifname: string;
  readonly begin: () => void;
}

const queues = new Map<string, Queue>();
const current = new AsyncLocalStorage<Turn>();

function queueOf(place: QueueRuntime): Queue {
  const dir = cacheDirOf(place);
  const queue = queues.get(dir) ?? { running: new Set(), waiting: [] };
  queues.set(dir, queue);
  return queue;
}

function waitFor<T>(
  of: Pick<Turn, 'network' | 'containerId' | 'ifname'>,
  queue: Queue,
  { onTurn }: QueueRuntime,
  work: () => Promise<T>,
): Promise<T> {
  const asked = performance.now();
  // Part of the library, which runs on Node 20: it has no Promise.withResolvers.
  return new Promise((resolve, reject) => {
    const turn: Turn = {
      ...of,
      begin() {
        queue.running.add(turn);
        onTurn?.(performance.now() - asked);
        void current
          .run(turn, work)
          .finally(() => end(turn, queue))
          .then(resolve, reject);
      },
    };
    if (mayBegin(turn, queue, queue.waiting)) turn.begin();
    else queue.waiting.push(turn);
  });
}

function end(turn: Turn, queue: Queue): void {
  const { running, waiting } = queue;
  running.delete(turn);
  for (const next of [...waiting]) {
    const place = waiting.indexOf(next);
    if (!mayBegin(next, queue, waiting.slice(0, place))) continue;
    waiting.splice(place, 1);
    next.begin();
  }
}

/** @param before what waits and came earlier */
function mayBegin({ network, containerId }: Turn, { running }: Queue, before: readonly Turn[]): boolean {
  const ahead = [...running, ...before];
  const isCollecting = ahead.some(one => one.containerId === undefined && one.network === network);
  return !isCollecting && (containerId === undefined || !ahead.some(one => one.containerId === containerId));
}

// The name of a further interface is chosen by looking which ones are free, and plugins of foreign make delete an interface by its name.
// So only one process at a time may choose a name in a container that runs. Few locks serve all containers: their files stay.

/** How long another process is waited for, and how its lock is taken: undefined while another one has it. */
interface Turnstile {
  readonly waitMs: number;
  take(path: string): (() => void) | undefined;
}

const PAUSE_MS = 20;

/**
 * Does the work while no other process adds networks to a container that runs, or removes them.
 * @throws CniError 11 if another one did so for too long
 */
export async function withContainerAlone<T>(
  containerId: string,
  { env, signal }: Pick<ChainRuntime, 'env' | 'signal'>,
  { waitMs, take }: Turnstile,
  work: () => Promise<T>,
): Promise<T> {
  const path = join(runDir(env), 'running', `${digestOf(containerId).slice(-2)}.lock`);
  const giveUpAt = performance.now() + waitMs;
  for (;;) {
    const release = take(path);
    if (release) {
      try {
        return await work();
      } finally {
        release();
      }
    }
    if (performance.now() > giveUpAt || signal?.aborted)
      throw tryAgainLater(
        `Cannot change the networks of container "${containerId}": another process does, and holds "${path}"; try again later`,
      );
    await pause(PAUSE_MS);
  }
}
