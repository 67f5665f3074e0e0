// How does the daemon tell the cluster what its watch found and did about a pod's networks, without drowning it in events?
import { listNetworks } from '../../chain/config/load.ts';
import { argOf, podNamedIn } from '../../cni/env.ts';
import { describeError } from '../../cni/errors.ts';
import { memberOf } from '../../cni/json.ts';
import { type ClusterAccess, isInCluster } from '../../delegate/cluster.ts';
import { eventOf } from '../../delegate/cluster-pod.ts';
import type { Observer } from '../../observe/observer.ts';
import type { WatchedAttachment } from '../../watch/attachments.ts';
import type { Act } from '../../watch/caretaker.ts';

/** Reasons, for programs, and what is said before the problem. */
const EVENTS: Readonly<Record<Act, readonly [reason: string, type: 'Normal' | 'Warning', words: string]>> = {
  drifted: ['NetworkDamaged', 'Warning', 'is no longer as it was made'],
  'damaged often': ['NetworkDamagedOften', 'Warning', 'is damaged again and again'],
  repaired: ['NetworkRepaired', 'Normal', 'was repaired'],
  'given up': ['NetworkNotRepaired', 'Warning', 'cannot be repaired, or is damaged again each time'],
  'sound again': ['NetworkSound', 'Normal', 'is sound again'],
  deleted: ['NetworkDeleted', 'Normal', 'was deleted after its namespace had ended without a DEL'],
};

/** The same about the same attachment is told once in this time; the API server forgets events after an hour. */
const REPEATED_MS = 60 * 60_000;
const TIMEOUT_MS = 5_000;

type Environment = Readonly<Record<string, string | undefined>>;

/** What the telling needs of the daemon. */
interface PodEventParts {
  readonly confDir: string;
  readonly env: Environment;
  readonly observer: Pick<Observer, 'log'>;
}

/** Tells of an act. Returns at once and never throws. */
type TellAct = (act: Act, attachment: WatchedAttachment, problem: string) => void;

/**
 * Tells the cluster that a list of the configuration directory names, or that this process runs in; without one, nothing. Events are
 * sent one after the other, and their number is limited: the log has all of it.
 */
export function podEvents({ confDir, env, observer }: PodEventParts): TellAct {
  const budget = new EventBudget(performance.now());
  let sending: Promise<void> = Promise.resolve();
  let isFailing = false;
  const send: TellAct = async (act, one, problem) => {
    const place = podNamedIn({ args: one.known.args });
    const access = place && findAccess(confDir, env);
    if (place === undefined || access === undefined) return;
    if (!budget.take(performance.now())) return;
    const omitted = budget.takeOmitted();
    if (omitted > 0)
      observer.log('info', 'events for the cluster were left out: there are too many', { omitted });
    try {
      const { openCluster } = await import('../../delegate/kubernetes.ts');
      const cluster = await openCluster(access);
      const uid =
        argOf({ args: one.known.args }, 'K8S_POD_UID') ??
        (await cluster.findPod(place.namespace, place.name))?.uid;
      if (uid !== undefined)
        await cluster.addEvent(place.namespace, eventOf(place, { uid }, said(act, one, problem)));
      isFailing = false;
    } catch (error) {
      if (!isFailing)
        observer.log('warn', 'cannot tell the cluster of attachments', { problem: describeError(error) });
      isFailing = true;
    }
  };
  return (act, one, problem) => {
    sending = sending.then(() => send(act, one, problem));
  };
}

function said(act: Act, { id, key }: WatchedAttachment, problem: string) {
  const [reason, type, words] = EVENTS[act];
  const message = `Interface "${id.ifname}" of network "${id.network}" ${words}${problem && `: ${problem}`}`;
  return { reason, type, message, about: `${key}\n${Math.floor(Date.now() / REPEATED_MS)}` };
}

/** How the runner's list says the cluster is reached. */
function findAccess(confDir: string, env: Environment): ClusterAccess | undefined {
  const timeoutMs = TIMEOUT_MS;
  for (const { list } of networksIn(confDir)) {
    for (const { conf } of list.plugins) {
      const kubeconfig = memberOf(conf, 'kubeconfig');
      if (typeof kubeconfig === 'string' && kubeconfig !== '') return { kubeconfig, timeoutMs };
    }
  }
  return isInCluster(env) ? { kubeconfig: undefined, timeoutMs } : undefined;
}

function networksIn(confDir: string) {
  try {
    return listNetworks(confDir).networks;
  } catch {
    // The directory cannot be read now.
    return [];
  }
}

/** Events at once, and how often a further one is allowed: as client-go limits the events of one source. */
const AT_ONCE = 25;
const EVERY_MS = 12_000;

/** A number of events that grows with time up to a limit. */
export class EventBudget {
  #left = AT_ONCE;
  #at: number;
  #omitted = 0;

  constructor(now: number) {
    this.#at = now;
  }

  /** Whether an event may be sent now, which counts as sent. */
  take(now: number): boolean {
    this.#left = Math.min(AT_ONCE, this.#left + (now - this.#at) / EVERY_MS);
    this.#at = now;
    const isAllowed = this.#left >= 1;
    if (isAllowed) this.#left -= 1;
    else this.#omitted += 1;
    return isAllowed;
  }

  /** Events that were not allowed since this was last asked. */
  takeOmitted(): number {
    const omitted = this.#omitted;
    this.#omitted = 0;
    return omitted;
  }
}
