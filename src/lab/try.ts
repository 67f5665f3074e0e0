// In which order are the steps of trying a chain run, what did each plugin do, and when does the trial succeed?
import type { Conflist } from '../chain/config/conflist.ts';
import { addNetwork, checkNetwork, deleteNetwork } from '../chain/run/run.ts';
import type { Attachment, PluginEvent, Runtime } from '../chain/run/runtime.ts';
import type { CniArgs } from '../cni/cni-args.ts';
import type { PluginEntry } from '../cni/conflist.ts';
import { defined } from '../cni/defined.ts';
import { ADDRESS_TAKEN, CniError, describeError, toCniError } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseResult, type Result } from '../cni/result.ts';
import { atLeast, SINCE, type SpecVersion } from '../cni/version.ts';
import { renderIp } from '../net/ip.ts';
import { findSysctl } from '../sys/sysctl.ts';
import {
  diffResults,
  diffStates,
  judge,
  judgeRound,
  renderDifference,
  type Snapshot,
  shapesAdded,
} from './diff.ts';
import {
  configurePlugins,
  createContainer,
  createLab,
  FRESH_DIRS,
  forNeighbour,
  notOfPlugins,
  offerCapabilities,
  type Place,
} from './lab.ts';
import {
  type Attached,
  type Probe,
  placeIps,
  promisesOf,
  runProbe,
  type Scene,
  sysctlsOf,
} from './probes.ts';
import { type Failure, isProblem, type PluginReport, type Section } from './report.ts';
import { takeSnapshot } from './state.ts';

/** What to try, and how. */
export interface Trial {
  readonly list: Conflist;
  readonly pluginDirs: readonly string[];
  readonly ifname: string;
  /** Names of further devices of the fake host. */
  readonly devices: readonly string[];
  readonly args: CniArgs;
  /** Capability arguments that replace the lab's offers. */
  readonly capabilities: JsonObject;
  /** Continue probing after a failure. */
  readonly keepGoing: boolean;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** True when running in a user namespace, without root. */
  readonly rootless: boolean;
  /** Paths in the fresh directories that show the machine's files, not created by plugins. */
  readonly shown: readonly string[];
  /** Receives each section of the report as soon as it is known. */
  readonly tell: (section: Section) => void;
}

/**
 * Runs a chain from ADD to DEL, in a lab made of the calling process's namespaces, which no other process may share.
 * @returns whether all promises were kept and nothing was left behind
 */
export async function tryChain(trial: Trial): Promise<boolean> {
  const started = performance.now();
  let failures = 0;
  const tell = (section: Section) => {
    if (isProblem(section)) failures++;
    trial.tell(section);
  };
  await rehearse(trial, tell, started);
  tell({ kind: 'verdict', ok: failures === 0, failures, durationMs: performance.now() - started });
  return failures === 0;
}

type Tell = (section: Section) => void;

async function rehearse(trial: Trial, tell: Tell, started: number): Promise<void> {
  const { list, ifname, rootless } = trial;
  const lab = createLab(trial.devices);
  const container = createContainer('container');
  const capabilities = offerCapabilities(list, trial.capabilities);
  const plugins = configurePlugins(list, capabilities);
  const sysctls = plugins.flatMap(({ conf }) => [...sysctlsOf(conf, ifname).keys()]);
  const sysctlsBefore = new Map(sysctls.map(path => [path, findSysctl(path)]));
  const files = { dirs: FRESH_DIRS, skip: notOfPlugins(trial.shown) };
  const look = () => takeSnapshot({ host: lab.host, container, sysctls, files });
  const durationMs = performance.now() - started;
  tell({
    kind: 'lab',
    network: list.name,
    version: list.version,
    links: plugins.length,
    rootless,
    durationMs,
  });

  const before = look();
  const observer = observePlugins(list.plugins, list.version, look);
  const runtime = runtimeOf(trial, observer);
  const attachment = attachmentTo(container, trial, capabilities);
  const added = await runVerb('ADD', observer, tell, () => addNetwork(list, attachment, runtime));
  let shapes: ReadonlySet<string> = new Set();
  let addresses: string[] = [];
  if (added.ok) {
    const own = { place: container, result: parseResult(added.value, list.version) };
    addresses = placeIps(container).map(renderIp);
    const checked = await check(trial, attachment, runtime, observer, tell);
    if (checked || trial.keepGoing) {
      const scene = { lab, plugins, ifname, container: own, sysctlsBefore };
      shapes = await probe(trial, scene, forNeighbour(capabilities), look, tell);
    }
    observer.take();
    await runVerb('DEL', observer, tell, () => deleteNetwork(list, attachment, runtime));
  }
  const ids = [attachment.containerId, attachment.netns];
  tell({ kind: 'left', ...judge(before, look(), { shapes, ids, addresses }) });
}

/** Runs one command over the chain and reports how each plugin did. */
async function runVerb<T>(
  verb: string,
  observer: Observer,
  tell: Tell,
  run: () => Promise<T>,
): Promise<{ ok: true; value: T } | { ok: false }> {
  const started = performance.now();
  const section = () => {
    const wallMs = performance.now() - started;
    const { reports, lookingMs } = observer.take();
    return { kind: 'verb', verb, links: reports, durationMs: wallMs - lookingMs } as const;
  };
  try {
    const value = await run();
    tell(section());
    return { ok: true, value };
  } catch (error) {
    tell({ ...section(), failure: toFailure(error) });
    return { ok: false };
  }
}

async function check(
  { list }: Trial,
  attachment: Attachment,
  runtime: Runtime,
  observer: Observer,
  tell: Tell,
): Promise<boolean> {
  const skipped = list.disableCheck
    ? 'the list disables it'
    : atLeast(list.version, SINCE.check)
      ? undefined
      : `it does not exist in version ${list.version}`;
  if (skipped !== undefined) {
    tell({ kind: 'verb', verb: 'CHECK', durationMs: 0, links: [], skipped });
    return true;
  }
  return (await runVerb('CHECK', observer, tell, () => checkNetwork(list, attachment, runtime))).ok;
}

/**
 * Attaches a second container, checks the promises, and detaches it again.
 * @returns shapes of what the second container added, which every container gets
 */
async function probe(
  trial: Trial,
  scene: Omit<Scene, 'neighbour'>,
  capabilities: JsonObject,
  look: () => Snapshot,
  tell: Tell,
): Promise<ReadonlySet<string>> {
  const { list } = trial;
  tell({ kind: 'probing' });
  const place = createContainer('neighbour');
  const attachment = attachmentTo(place, trial, capabilities);
  const runtime = runtimeOf(trial);
  const alone = look();
  let neighbour: Attached | undefined;
  try {
    const result = await addNetwork(list, attachment, runtime);
    neighbour = { place, result: parseResult(result, list.version) };
  } catch (error) {
    // A conflist with a fixed address supports only one container.
    const outcome = toCniError(error).code === ADDRESS_TAKEN ? 'skipped' : 'failed';
    tell({ kind: 'probe', what: 'a second container joins', outcome, seen: describeError(error) });
  }
  const shapes = shapesAdded(alone, look());
  runProbes(promisesOf({ ...scene, neighbour }), trial.keepGoing, tell);
  if (neighbour) tell(await leave(() => deleteNetwork(list, attachment, runtime), alone, look));
  return shapes;
}

function runProbes(probes: readonly Probe[], keepGoing: boolean, tell: Tell): void {
  for (const { what, run } of probes) {
    const section = { kind: 'probe', what, ...runProbe(run) } as const;
    tell(section);
    if (isProblem(section) && !keepGoing) return;
  }
}

async function leave(run: () => Promise<void>, alone: Snapshot, look: () => Snapshot): Promise<Section> {
  const what = 'a second container leaves nothing behind';
  try {
    await run();
  } catch (error) {
    return { kind: 'probe', what, outcome: 'failed', seen: describeError(error) };
  }
  const left = judgeRound(alone, look());
  if (left.length) return { kind: 'probe', what, outcome: 'failed', seen: left.join(', ') };
  return { kind: 'probe', what, outcome: 'ok', seen: '' };
}

function attachmentTo(
  { name, netns }: Place,
  { ifname, args }: Trial,
  capabilityArgs: JsonObject,
): Attachment {
  return { containerId: `catena-try-${name}`, netns: netns.path, ifname, args, capabilityArgs };
}

function runtimeOf({ pluginDirs, env }: Trial, observer?: Observer): Runtime {
  return { pluginDirs, env, ...(observer ? { onPlugin: observer.onPlugin } : {}) };
}

/** Observes the plugins of one conflist. */
export interface Observer {
  /** For {@link Runtime.onPlugin}. */
  onPlugin(event: PluginEvent): void;
  /** What was observed since the last call, and how long the snapshots took. */
  take(): { reports: PluginReport[]; lookingMs: number };
}

/** Compares the snapshot after each plugin with the previous one. */
export function observePlugins(
  plugins: readonly PluginEntry[],
  version: SpecVersion,
  look: () => Snapshot,
): Observer {
  let last = look();
  let result: Result | undefined;
  let reports: PluginReport[] = [];
  let lookingMs = 0;
  return {
    onPlugin(event) {
      const started = performance.now();
      const now = look();
      const { verb, durationMs, error } = event;
      const before = result;
      if (event.result) result = parseResult(event.result, version);
      const name = nameOf(event.plugin, plugins[event.index]);
      reports.push({
        link: verb === 'DEL' && reports.some(one => one.failure) ? `${name}, undone` : name,
        durationMs,
        result: event.result && result ? diffResults(before, result) : [],
        host: renderDifference(diffStates(last.host, now.host)),
        container: renderDifference(diffStates(last.container, now.container)),
        files: renderDifference(diffStates(last.files, now.files)),
        ...(error ? { failure: toFailure(error) } : {}),
      });
      last = now;
      lookingMs += performance.now() - started;
    },
    take() {
      const seen = { reports, lookingMs };
      reports = [];
      lookingMs = 0;
      last = look();
      return seen;
    },
  };
}

/** An error with all its details, human-readable. */
export function toFailure(thrown: unknown): Failure {
  const { message, code, details, plugin } = toCniError(thrown);
  const stderr = plugin?.stderr?.trim();
  return {
    message,
    ...(thrown instanceof CniError ? { code } : {}),
    ...defined({ details }),
    ...(stderr ? { stderr } : {}),
  };
}

/** A plugin calls the plugin in its `ipam` itself, so that one has no report of its own. */
function nameOf(type: string, entry: PluginEntry | undefined): string {
  const ipam = entry?.conf.ipam;
  return isObject(ipam) && typeof ipam.type === 'string' && ipam.type ? `${type} + ${ipam.type}` : type;
}
