// Does a virtual machine move to a pod, and when has it arrived?
//
// README.md says which pod is quiet when, and how each asks the other.
// A daemon looks, so without one nothing moves: the ADD fails with code 11 as long as the address is in use.
//
// Either daemon may be killed or stand still in between. So the first pod, once quiet, asks the link in turn, and speaks again if the second does
// not in time; and the second, which may have stood still since then, never acts on what it saw long ago.

import { readAttachment } from '../attachments/store.ts';
import { argOf, podNamedIn } from '../cni/env.ts';
import { parseIp } from '../net/ip.ts';
import { pause } from '../wait.ts';
import type { Cluster, KubernetesPod, PodOfMachine } from './cluster.ts';
import { isThere, type PodContents, type PodKey, parsePod, renderPod, withPod } from './record.ts';
import type { Pod, Runner } from './runner.ts';

/** Of the pod that a machine has left: the uid of the pod that has it now, and when (ms) that one asked for silence. */
const LEFT_ANNOTATION = 'catena.cni.cncf.io/machine-left';
/** Of the same pod: for which uid its networks are quiet. */
const QUIET_ANNOTATION = 'catena.cni.cncf.io/quiet-for';

/** After how long the link is asked instead: a node without daemon says nothing. For a pod that is over, it is asked at once. */
const SILENCE_MS = 5_000;
/** Then another host has the addresses, which nothing here can change. */
const MOST_SILENCE_MS = 60_000;
/**
 * So long one look waits, which is about a request each time, and while the API server is away, which had been asked. The former pod
 * waits only briefly: who has asked for its silence has to be there when it comes.
 */
const LOOK_MS = 10_000;
const OUTAGE_MS = 15_000;
const ASK_AGAIN_MS = 40;
const LOOK_AGAIN_MS = 10;
/** So often in turn the link has to be without an answer, 200 ms each time: a busy node answers late. */
const ASK_LINK = 2;
/**
 * So long a pod that was made quiet waits for the other one, and then asks the link once more. Longer than the other one needs that is
 * told nothing and asks the link, and all in all less than a second.
 */
const UNTAKEN_MS = 500;
/** What was seen earlier may have changed. */
const FRESH_MS = 400;

/** A pod to which a machine moves, and the other pods of that machine. */
interface Move {
  readonly api: Cluster;
  readonly namespace: string;
  readonly uid: string;
  readonly machine: string;
  readonly isActive: boolean;
  readonly others: readonly PodOfMachine[];
}

/**
 * Whether a machine moves to this pod, and has not arrived.
 * @throws CniError 11 when the cluster cannot be reached
 */
export async function isMovingTo(runner: Runner, pod: Pod): Promise<boolean> {
  return isOnItsWay(await findMove(runner, pod));
}

function isOnItsWay(move: Move | undefined): boolean {
  return move !== undefined && !move.isActive && move.others.some(({ isOver }) => !isOver);
}

/** Undefined unless the pod was made for a machine to move to. */
async function findMove({ cluster }: Runner, pod: Pod): Promise<Move | undefined> {
  const place = podNamedIn(pod);
  if (!cluster || place === undefined) return undefined;
  const { namespace, name } = place;
  const api = await cluster();
  // Not as a watch knows it: this decides who speaks.
  const found = await api.findPod(namespace, name);
  if (!found?.machine?.isTarget || !isOwnPod(found, pod)) return undefined;
  const { uid: machine, isActive } = found.machine;
  const others = await othersOf(api, namespace, machine, found.uid);
  return { api, namespace, uid: found.uid, machine, isActive, others };
}

async function othersOf(api: Cluster, namespace: string, machine: string, own: string) {
  return (await api.findPodsOfMachine(namespace, machine)).filter(({ uid }) => uid !== own);
}

function isOwnPod({ uid }: KubernetesPod, pod: Pod): boolean {
  return uid === (argOf(pod, 'K8S_POD_UID') || uid);
}

/** Lets the networks of a pod speak to which a machine was moving, once it has arrived. @throws CniError 11 as {@link isMovingTo} */
export async function endMove(runner: Runner, key: PodKey, pod: Pod): Promise<void> {
  const own = contentsOf(runner, key, pod);
  if (!own?.machine?.moves) return;
  const move = await findMove(runner, pod);
  if (isOnItsWay(move) || (move && !(await areSilent(runner, own, move)))) return;
  const seen = performance.now();
  await withPod(runner, key, 'add', async held => {
    if (!held.known?.past.stands || !isFresh(seen)) return;
    const contents = parsePod(held.known.record);
    if (!contents.machine?.moves) return;
    await runner.endQuiet?.(contents.machine.ifnames);
    held.restate(renderPod({ ...contents, machine: { ...contents.machine, moves: false } }));
  });
}

function contentsOf({ podsDir }: Runner, key: PodKey, { netns }: Pod): PodContents | undefined {
  const record = readAttachment({ journals: [podsDir] }, key);
  return record && isThere(record, netns) ? parsePod(record) : undefined;
}

/** Whether no other pod answers for the addresses. Asks those that may. */
async function areSilent(runner: Runner, own: PodContents, move: Move): Promise<boolean> {
  const { api, namespace, uid, machine } = move;
  const link = watchLink(askingFor(runner, own));
  const began = performance.now();
  let known = move.others;
  let looked = began;
  let spoke = Number.NEGATIVE_INFINITY;
  try {
    for (; ; await pause(ASK_AGAIN_MS)) {
      const now = Date.now();
      const speaking = speakingIn(known).filter(({ annotations }) => annotations[QUIET_ANNOTATION] !== uid);
      const askedFor = ({ annotations }: PodOfMachine) => {
        const [by, at] = askedIn(annotations);
        return by === uid ? now - at : -1;
      };
      if (speaking.length > 0) spoke = looked;
      // All have said so, just now, or no longer matter; one that has vanished may still run.
      const isSaid = known.length > 0 && speaking.every(one => askedFor(one) > MOST_SILENCE_MS);
      if (isSaid && (!link || isFresh(spoke))) return true;
      const isUnheard = speaking.every(one => one.isOver || askedFor(one) > (link ? 0 : SILENCE_MS));
      if (isUnheard && (await isSilent(link, runner, own))) return true;
      if (performance.now() - began > LOOK_MS) return false;
      try {
        for (const one of speaking)
          if (askedFor(one) < 0) await api.annotate(namespace, one, { [LEFT_ANNOTATION]: `${uid} ${now}` });
        looked = performance.now();
        const found = await unlessSilent(othersOf(api, namespace, machine, uid), link);
        if (found === undefined) return true;
        known = found;
      } catch (error) {
        // It may have been asked, and be quiet already.
        for (; performance.now() - began < OUTAGE_MS; await pause(ASK_AGAIN_MS))
          if (await isSilent(link, runner, own)) return true;
        throw error;
      }
    }
  } finally {
    link?.stop();
  }
}

function isFresh(at: number): boolean {
  return performance.now() - at < FRESH_MS;
}

/**
 * Asks the link whether another one has the addresses. Undefined if it cannot be asked all the time: it knows IPv4 only, and where both pods
 * have one hardware address, the question itself would lead the frames for the other one here.
 */
function askingFor({ isAnsweredElsewhere }: Runner, own: PodContents): Ask | undefined {
  const { ifnames = [] } = own.machine ?? {};
  const those = own.networks.filter(({ ifname }) => ifnames.includes(ifname));
  const isPlain = those.every(({ capabilityArgs, status }) => {
    const ips = Array.isArray(status?.ips) ? status.ips : [];
    return capabilityArgs.mac === undefined && ips.some(ip => parseIp(String(ip)).family === 4);
  });
  if (!isAnsweredElsewhere || those.length === 0 || !isPlain) return undefined;
  return () => isAnsweredElsewhere(ifnames);
}

type Ask = () => Promise<boolean>;

/** Asks again and again, beside other work. */
function watchLink(ask: Ask | undefined) {
  if (!ask) return undefined;
  let [silences, at, isOver] = [0, 0, false];
  (async () => {
    for (; !isOver; await pause(ASK_AGAIN_MS)) {
      const began = performance.now();
      const isAnswered = await ask();
      at = performance.now();
      silences = isAnswered || !isFresh(began) ? 0 : silences + 1;
    }
  })().catch(() => {
    silences = 0;
  });
  return {
    isSilent: () => silences >= ASK_LINK && isFresh(at),
    stop() {
      isOver = true;
    },
  };
}

/** What was asked for, or undefined if the link falls silent before it is there. */
async function unlessSilent<T>(
  asking: Promise<T>,
  link: ReturnType<typeof watchLink>,
): Promise<T | undefined> {
  if (!link) return asking;
  let isOver = false;
  const silence = async (): Promise<undefined> => {
    while (!isOver && !link.isSilent()) await pause(LOOK_AGAIN_MS);
  };
  asking.catch(() => {});
  return Promise.race([asking, silence()]).finally(() => {
    isOver = true;
  });
}

async function isSilent(
  link: ReturnType<typeof watchLink>,
  { isAnsweredElsewhere }: Runner,
  { machine }: PodContents,
): Promise<boolean> {
  if (link) return link.isSilent();
  for (let i = 0; i < ASK_LINK; i++) if (await isAnsweredElsewhere?.(machine?.ifnames ?? [])) return false;
  return true;
}

/** The source of a move; pods beside it that are over are of earlier moves. */
function speakingIn(others: readonly PodOfMachine[]): readonly PodOfMachine[] {
  const running = others.filter(({ isOver }) => !isOver);
  return running.length ? running : others.filter(({ annotations }) => !annotations[QUIET_ANNOTATION]);
}

function askedIn(annotations: KubernetesPod['annotations']): readonly [uid: string | undefined, at: number] {
  const [uid, at] = annotations[LEFT_ANNOTATION]?.split(' ') ?? [];
  return [uid, Number(at)];
}

/** Whether the pod that has the machine of this one now waits for it to be quiet. */
export function isAskedForSilence({ annotations }: KubernetesPod): boolean {
  const [uid] = askedIn(annotations);
  return uid !== undefined && annotations[QUIET_ANNOTATION] !== uid;
}

/**
 * Makes the networks of a machine quiet that has left the pod, if that is asked for. They speak again if the pod that has asked does not
 * in time, which has to ask again then.
 * @throws CniError 11 as {@link isMovingTo}
 */
export async function leaveMachine(runner: Runner, key: PodKey, pod: Pod): Promise<void> {
  const own = contentsOf(runner, key, pod);
  const { namespace = '', name = '' } = podNamedIn(pod) ?? {};
  const api = await runner.cluster?.();
  if (!own?.machine || own.machine.moves || !api) return;
  const found = await api.findPod(namespace, name);
  if (!found || !isOwnPod(found, pod) || !isAskedForSilence(found)) return;
  const { ifnames } = own.machine;
  await runner.beginQuiet?.(ifnames);
  const place = { name, uid: found.uid };
  const [by] = askedIn(found.annotations);
  const saying = api.annotate(namespace, place, { [QUIET_ANNOTATION]: by ?? '' });
  const said = saying.catch(() => undefined);
  const ask = askingFor(runner, own);
  if (!ask || (await isTaken(ask))) return saying;
  await runner.endQuiet?.(ifnames);
  // It may have begun to speak in this very moment.
  if (await ask()) {
    await runner.beginQuiet?.(ifnames);
    return saying;
  }
  await said;
  await api.annotate(namespace, place, { [LEFT_ANNOTATION]: null, [QUIET_ANNOTATION]: null });
}

/** Waits until another one has the addresses, or {@link UNTAKEN_MS}. */
async function isTaken(ask: Ask): Promise<boolean> {
  const began = performance.now();
  for (;;) {
    const asked = performance.now();
    if (await ask()) return true;
    if (performance.now() - began >= UNTAKEN_MS && isFresh(asked)) return false;
  }
}
