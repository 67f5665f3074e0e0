// In which order are the steps of trying a chain run, what did each plugin do, and when does the trial succeed?
import type { Conflist, PluginEntry } from '../chain/config/conflist.ts';
import type { Attachment } from '../chain/run/runtime.ts';
import type { CniArgs } from '../cni/env.ts';
import { ADDRESS_TAKEN, CniError, describeError, toCniError } from '../cni/errors.ts';
import { defined, type JsonObject } from '../cni/json.ts';
import { ipamTypeIn } from '../cni/plugin-about.ts';
import { atLeast, parseResult, type Result, SINCE } from '../cni/result.ts';
import { renderIp } from '../net/ip.ts';
import { findSysctl } from '../sys/sysctl.ts';
import {
  type Arguments,
  type ConfiguredPlugin,
  configurePlugins,
  forNeighbour,
  listForNeighbour,
  offerCapabilities,
} from './configured.ts';
import {
  diffResults,
  diffStates,
  judge,
  judgeRound,
  renderDifference,
  type Snapshot,
  shapesAdded,
  stateOf,
} from './diff.ts';
import { createLab, createNamespace, endLasting, FRESH_DIRS, type Namespace, notOfPlugins } from './host.ts';
import { type ChainVerb, type Play, play, runChain } from './play.ts';
import {
  type Attached,
  type Probe,
  placeIps,
  promisesOf,
  runProbe,
  type Scene,
  sysctlsOf,
} from './probes.ts';
import { strayProcesses } from './reexec.ts';
import { type Failure, isProblem, type PluginReport, type Section } from './report.ts';
import { readFiles, readNamespace } from './state.ts';

interface Trial {
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
  const { list, ifname, rootless, pluginDirs, env } = trial;
  const lab = createLab(trial.devices);
  const container = createNamespace('container');
  const capabilities = offerCapabilities(list, trial.capabilities);
  const plugins = configurePlugins(list, capabilities);
  const sysctls = plugins.flatMap(({ conf }) => [...sysctlsOf(conf, ifname).keys()]);
  const sysctlsBefore = new Map(sysctls.map(path => [path, findSysctl(path)]));
  const look = (): Snapshot => ({
    host: readNamespace(lab.host, sysctls),
    container: readNamespace(container, sysctls),
    files: stateOf(readFiles(FRESH_DIRS, notOfPlugins(trial.shown))),
  });
  const { name: network, version } = list;
  const durationMs = performance.now() - started;
  tell({ kind: 'lab', network, version, plugins: plugins.length, rootless, durationMs });
  const before = look();
  const given = { args: trial.args, capabilityArgs: capabilities };
  const attachment = attachmentTo(container, ifname, given);
  const run = async (verb: ChainVerb) => {
    const earlier = look();
    const played = await play(hook => runChain(verb, list, attachment, { pluginDirs, env, ...hook }), look);
    const { plugins: seen, durationMs, error } = played;
    const failure = error === undefined ? {} : { failure: toFailure(error) };
    tell({ kind: 'verb', verb, plugins: reportOn(seen, earlier, list), durationMs, ...failure });
    return { ok: error === undefined, value: played.value };
  };
  const added = await run('ADD');
  let shapes: ReadonlySet<string> = new Set();
  let addresses: string[] = [];
  if (added.ok) {
    const own = { place: container, result: parseResult(added.value ?? {}, list.version) };
    addresses = placeIps(container).map(renderIp);
    const skipped = whyUnchecked(list);
    if (skipped !== undefined) tell({ kind: 'verb', verb: 'CHECK', durationMs: 0, plugins: [], skipped });
    const checked = skipped ? { ok: true } : await run('CHECK');
    if (checked.ok || trial.keepGoing) {
      const scene = { lab, plugins, ifname, container: own, sysctlsBefore };
      const second = { given: forNeighbour(given), alone: whyAlone(plugins, before, look()) };
      shapes = await probe(trial, scene, second, look, tell);
    }
    await run('DEL');
  }
  const processes = endLasting(strayProcesses).map(name => `process ${name}`);
  const ids = [attachment.containerId, attachment.netns];
  const { left, kept } = judge(before, look(), { shapes, ids, addresses });
  tell({ kind: 'left', left: [...processes, ...left], kept });
}

function whyUnchecked({ disableCheck, version }: Conflist): string | undefined {
  if (disableCheck) return 'the list disables it';
  return atLeast(version, SINCE.check) ? undefined : `it does not exist in version ${version}`;
}

/**
 * Attaches a second container, checks the promises, and detaches it again.
 * @returns shapes of what the second container added, which every container gets
 */
async function probe(
  trial: Trial,
  scene: Omit<Scene, 'neighbour'>,
  second: { readonly given: Arguments; readonly alone: string | undefined },
  look: () => Snapshot,
  tell: Tell,
): Promise<ReadonlySet<string>> {
  const { pluginDirs, env } = trial;
  const [list, runtime] = [listForNeighbour(trial.list), { pluginDirs, env }];
  tell({ kind: 'probing' });
  const place = createNamespace('neighbour');
  const attachment = attachmentTo(place, trial.ifname, second.given);
  const alone = look();
  let neighbour: Attached | undefined;
  const joins = (outcome: 'skipped' | 'failed', seen: string) =>
    tell({ kind: 'probe', what: 'a second container joins', outcome, seen });
  try {
    if (second.alone === undefined) {
      const result = await runChain('ADD', list, attachment, runtime);
      neighbour = { place, result: parseResult(result ?? {}, list.version) };
    } else joins('skipped', second.alone);
  } catch (error) {
    // A conflist with a fixed address supports only one container.
    joins(toCniError(error).code === ADDRESS_TAKEN ? 'skipped' : 'failed', describeError(error));
  }
  const shapes = shapesAdded(alone, look());
  runProbes(promisesOf({ ...scene, neighbour }), trial.keepGoing, tell);
  if (neighbour) {
    const problems = await runChain('DEL', list, attachment, runtime).then(
      () => judgeRound(alone, look()),
      error => [describeError(error)],
    );
    const outcome = problems.length ? 'failed' : 'ok';
    tell({
      kind: 'probe',
      what: 'a second container leaves nothing behind',
      outcome,
      seen: problems.join(', '),
    });
  }
  return shapes;
}

function runProbes(probes: readonly Probe[], keepGoing: boolean, tell: Tell): void {
  for (const { what, run } of probes) {
    const section = { kind: 'probe', what, ...runProbe(run) } as const;
    tell(section);
    if (isProblem(section) && !keepGoing) return;
  }
}

/** Why a list supports only one container; undefined if a second one is to join. */
function whyAlone(
  plugins: readonly ConfiguredPlugin[],
  before: Snapshot,
  after: Snapshot,
): string | undefined {
  const taken = diffStates(before.host, after.host).removed.find(({ key }) => key.startsWith('link '));
  if (taken) return `the first one has ${taken.words} of the host`;
  const isWhole = plugins.some(({ conf }) => conf.mode === 'passthru');
  return isWhole ? 'mode "passthru" lets only one container have the device' : undefined;
}

function attachmentTo({ name, path }: Namespace, ifname: string, given: Arguments): Attachment {
  return { containerId: `catena-try-${name}`, netns: path, ifname, ...given };
}

/** What each plugin changed: its moment beside the one before. */
function reportOn(
  moments: Play<Snapshot, unknown>['plugins'],
  before: Snapshot,
  { plugins, version }: Conflist,
): PluginReport[] {
  let last = before;
  let result: Result | undefined;
  const reports: PluginReport[] = [];
  for (const { event, sight } of moments) {
    const { verb, error, plugin, index, durationMs } = event;
    const now = event.result && parseResult(event.result, version);
    const name = nameOf(plugin, plugins[index]);
    const changes = (place: keyof Snapshot) => renderDifference(diffStates(last[place], sight[place]));
    reports.push({
      type: verb === 'DEL' && reports.some(one => one.failure) ? `${name}, undone` : name,
      durationMs,
      result: now ? diffResults(result, now) : [],
      host: changes('host'),
      container: changes('container'),
      files: changes('files'),
      ...(error ? { failure: toFailure(error) } : {}),
    });
    last = sight;
    result = now ?? result;
  }
  return reports;
}

/** An error with all its details, human-readable. */
function toFailure(thrown: unknown): Failure {
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
  const ipam = entry && ipamTypeIn(entry.conf);
  return ipam === undefined ? type : `${type} + ${ipam}`;
}
