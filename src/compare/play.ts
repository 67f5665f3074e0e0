// How does one twin play a scene?
import { existsSync, fstatSync, readFileSync, rmSync } from 'node:fs';
import type { Conflist } from '../chain/config/conflist.ts';
import { collectGarbage } from '../chain/records/collect-garbage.ts';
import { addNetwork, checkNetwork, deleteNetwork, networkStatus } from '../chain/run/run.ts';
import type { Attachment, PluginEvent, Runtime } from '../chain/run/runtime.ts';
import type { CniArgs } from '../cni/cni-args.ts';
import { defined } from '../cni/defined.ts';
import { CniError, toCniError } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { atLeast, SINCE } from '../cni/version.ts';
import { handOver } from '../handover/hand-over.ts';
import { forNeighbour } from '../lab/capabilities.ts';
import { createContainer, createLab, FRESH_DIRS, notOfPlugins, type Place } from '../lab/lab.ts';
import { readFiles } from '../lab/state.ts';
import { listAddresses, removeAddress } from '../netlink/rtnl/addr.ts';
import { findLink, listLinks } from '../netlink/rtnl/link.ts';
import { closeNetns, type Netns, unmountNetns } from '../sys/netns.ts';
import { observePlace } from './observe.ts';
import type { Answer, Moment, Scene, SceneRecord, Side, Sight, Step } from './scene.ts';

/** The configuration of a twin. */
export interface Twin {
  readonly list: Conflist;
  readonly side: Side;
  /** How each side's executables are run. */
  readonly runtimes: Readonly<Record<Side, Pick<Runtime, 'pluginDirs' | 'env' | 'exec'>>>;
  readonly ifname: string;
  readonly args: CniArgs;
  readonly capabilities: JsonObject;
  /** Paths in the fresh directories that were not created by plugins. */
  readonly shown: readonly string[];
}

const OF_THE_RUNNER = ['/var/lib/cni/results', '/var/lib/catena'];
const DIGEST_ABOVE_BYTES = 16_384;
/** A busy machine destroys namespaces one after another. */
const GONE_WITHIN_MS = 60_000;
const NAMES = { 1: 'container', 2: 'second container' } as const;

/** Plays a scene in the calling process's namespaces, which must be new and not shared. */
export async function playScene(scene: Scene, twin: Twin): Promise<SceneRecord> {
  const lab = createLab();
  const containers = new Map<string, Place>([
    [NAMES[1], createContainer('one')],
    [NAMES[2], createContainer('two')],
  ]);
  const look = (): Sight => ({
    places: Object.fromEntries(
      [['host', lab.host] as const, ...containers].map(([name, place]) => [name, observePlace(place)]),
    ),
    files: readContents(twin.shown),
  });
  const stage: Stage = { twin, lab: lab.host, containers, look };
  const namespaces = Object.fromEntries(
    [['host', lab.host] as const, ...containers].map(([name, { netns }]) => [name, inodeOf(netns)]),
  );
  const [began, before] = [Date.now(), look()];
  const moments: Moment[] = [];
  for (const step of scene.steps) moments.push(...(await takeStep(step, stage)));
  return { namespaces, began, ended: Date.now(), before, moments };
}

function inodeOf({ fd }: Netns): string {
  return String(fstatSync(fd, { bigint: true }).ino);
}

interface Stage {
  readonly twin: Twin;
  readonly lab: Place;
  readonly containers: Map<string, Place>;
  readonly look: () => Sight;
}

async function takeStep(step: Step, stage: Stage): Promise<Moment[]> {
  const { verb, name = verb } = step;
  const moments: Moment[] = [];
  let lookedMs = 0;
  const started = performance.now();
  const onPlugin = (event: PluginEvent) => {
    const looking = performance.now();
    const { index, durationMs, verb: own } = event;
    moments.push({ step: name, verb: own, index, answer: answerOf(event), durationMs, sight: stage.look() });
    lookedMs += performance.now() - looking;
  };
  let answer: Answer = { failed: false };
  try {
    await perform(step, stage, { ...stage.twin.runtimes[step.by ?? stage.twin.side], onPlugin: onPlugin });
  } catch (thrown) {
    answer = refusal(thrown);
  }
  const durationMs = performance.now() - started - lookedMs;
  return [...moments, { step: name, verb, answer, durationMs, sight: stage.look() }];
}

async function perform(step: Step, stage: Stage, runtime: Runtime): Promise<void> {
  const { twin, containers } = stage;
  const { list } = twin;
  const who = NAMES[step.who ?? 1];
  const attachment = attachmentTo(who, step, twin);
  switch (step.verb) {
    case 'ADD':
      return void (await addNetwork(list, attachment, runtime));
    case 'CHECK':
      return atLeast(list.version, SINCE.check) ? checkNetwork(list, attachment, runtime) : undefined;
    case 'DEL':
      return deleteNetwork(list, attachment, runtime);
    case 'STATUS':
      return atLeast(list.version, SINCE.status) ? networkStatus(list, runtime) : undefined;
    case 'GC': {
      const valid = [{ containerID: attachment.containerId, ifname: attachment.ifname }];
      return void (await collectGarbage(list, { valid }, runtime));
    }
    case 'hand over':
      return void (await handOver(list, { network: list.name, ...attachment }, 'do', runtime));
    case 'damage':
      return damage(containers.get(who), twin.ifname);
    default:
      return removeNamespace(who, stage);
  }
}

function attachmentTo(who: string, { withoutNetns }: Step, { ifname, args, capabilities }: Twin): Attachment {
  const path = `/run/netns/${who === NAMES[1] ? 'one' : 'two'}`;
  return {
    containerId: `catena-compare-${who === NAMES[1] ? 'one' : 'two'}`,
    netns: withoutNetns ? '' : path,
    ifname,
    args,
    // Two containers cannot use the same host port.
    capabilityArgs: who === NAMES[1] ? capabilities : forNeighbour(capabilities),
  };
}

/** Removes the addresses, as a process in the container might do. */
function damage(place: Place | undefined, ifname: string): void {
  const link = place && findLink(place.route, ifname);
  if (!place || !link) return;
  for (const { cidr } of listAddresses(place.route, link.index)) removeAddress(place.route, link.index, cidr);
}

/** The kernel destroys a namespace asynchronously, and only then deletes the host end of a pair. */
async function removeNamespace(who: string, { containers, lab }: Stage): Promise<void> {
  const place = containers.get(who);
  if (!place) return;
  const count = () => listLinks(lab.route).filter(({ kind }) => kind === 'veth').length;
  const before = count();
  containers.delete(who);
  place.route.close();
  place.netfilter.close();
  unmountNetns(place.netns.path);
  rmSync(place.netns.path, { force: true });
  closeNetns(place.netns);
  for (let attempt = 0; attempt < GONE_WITHIN_MS / 20 && count() === before; attempt++) await Bun.sleep(20);
}

function answerOf({ result, error }: PluginEvent): Answer {
  if (error) return refusal(error);
  return { failed: false, ...defined({ result }) };
}

function refusal(thrown: unknown): Answer {
  const { code, message } = thrown instanceof CniError ? thrown : toCniError(thrown);
  return { failed: true, code, message };
}

/** Every file that plugins wrote, with its content. */
function readContents(shown: readonly string[]): Record<string, string> {
  const files = readFiles(FRESH_DIRS, [...OF_THE_RUNNER, ...notOfPlugins(shown)]);
  return Object.fromEntries(
    files.flatMap(({ key }) => {
      const path = key.replace(/^file /, '');
      return existsSync(path) ? [[path, contentOf(path)]] : [];
    }),
  );
}

function contentOf(path: string): string {
  try {
    const bytes = readFileSync(path);
    if (bytes.length <= DIGEST_ABOVE_BYTES && !bytes.includes(0)) return bytes.toString();
    return `${bytes.length} bytes, ${new Bun.CryptoHasher('sha256').update(bytes).digest('hex')}`;
  } catch (thrown) {
    return `unreadable: ${(thrown as NodeJS.ErrnoException).code}`;
  }
}
