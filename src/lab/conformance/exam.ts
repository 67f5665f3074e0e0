// Which plugin is examined, what is a rule, and what happens on each of the examination's fresh hosts?
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { loadFile } from '../../chain/config/load.ts';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import { attempt, CniError, ErrorCode, invalidConfig } from '../../cni/errors.ts';
import { isObject, type JsonObject, parseObject, quote } from '../../cni/json.ts';
import {
  atLeast,
  CURRENT_VERSION,
  isSpecVersion,
  parseResult,
  type Result,
  renderResult,
  SINCE,
  type SpecVersion,
} from '../../cni/result.ts';
import { signalGroup } from '../../files/process-stat.ts';
import { ANYWHERE, parseCidr, parseIp } from '../../net/ip.ts';
import { addAddress } from '../../netlink/rtnl/addr.ts';
import { createLink, findLink, getLink, setLink } from '../../netlink/rtnl/link.ts';
import { addRoute } from '../../netlink/rtnl/route.ts';
import { type CallOptions, type Reply, requestOf, type Verb } from '../call.ts';
import { configurePlugins, offerCapabilities } from '../configured.ts';
import { diffKernelStates, type KernelState } from '../diff.ts';
import { layCable, type Namespace, removeContainer } from '../host.ts';
import { callExecutable, startBeside } from '../play.ts';
import { type Container, createHost, endProcessesIn, type TestHost } from '../testing/host.ts';

export interface Subject {
  /** Absolute path. */
  readonly executable: string;
  /** Configuration of one plugin, as it receives it. Without it, only rules that need none are examined. */
  readonly conf?: JsonObject | undefined;
  /** True for a plugin that comes after one that makes the interface: it gets a `prevResult`, and the devices named there. */
  readonly chained: boolean;
  /** The content of that `prevResult`, in 1.1.0; its paths are filled in. By default a veth pair with an IPv4 address. */
  readonly prevResult?: JsonObject | undefined;
  /** A device that must exist on the host, because the plugin moves it or builds on it. */
  readonly device?: string | undefined;
  /**
   * Name of a bridge that must exist on the host; the container has an interface on it, without addresses, as an IPAM plugin finds
   * it that asks a server of the network.
   */
  readonly bridge?: string | undefined;
  /** An executable that runs on the host during the examination, such as that server. Absolute path. */
  readonly beside?: string | undefined;
  /** `CNI_IFNAME` */
  readonly ifname: string;
  /** `CNI_PATH` */
  readonly pluginDirs: readonly string[];
  /** Additional environment variables of the plugin. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Directories in which no files may be left behind, and paths in them that are not the plugin's. */
  readonly watch: { readonly dirs: readonly string[]; readonly skip: readonly string[] };
  /** Time for one call. */
  readonly deadlineMs: number;
}

/** Sources of rules that are not of the specification. */
export const SKELETON = 'reference skeleton';
export const PRACTICE = 'good practice';

/** Name of the network when the configuration has none. */
const NETWORK = 'conformance';

/** The configuration for one version: the given one, or the minimum. */
export function confOf({ conf, executable }: Subject, version: SpecVersion): JsonObject {
  return { name: NETWORK, type: basename(executable), ...conf, cniVersion: version };
}

/** Reads a JSON object from a file. @throws CniError when it contains none */
export function readObject(file: string): JsonObject {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    const reason = (cause as { code?: string }).code ?? String(cause);
    throw new CniError(ErrorCode.ioFailure, `Cannot read "${file}": ${reason}`, { cause });
  }
  return parseObject(text, `"${file}"`);
}

/**
 * The first entry of that type in a conflist, with capability arguments as `catena try` offers them.
 * @throws CniError when the conflist has none
 */
export function findSample(
  file: string,
  type: string,
  capabilities: JsonObject,
): Pick<Subject, 'chained'> & { readonly conf: JsonObject } {
  const list = loadFile(file);
  const at = list.plugins.findIndex(one => one.type === type);
  const entry = configurePlugins(list, offerCapabilities(list, capabilities))[at];
  if (entry === undefined) {
    const types = list.plugins.map(one => `"${one.type}"`).join(', ');
    throw invalidConfig(`Cannot find "${type}" in "${file}": its plugins are ${types}`);
  }
  const { conf, runtimeConfig } = entry;
  const given = Object.keys(runtimeConfig).length ? { runtimeConfig } : {};
  return { conf: { ...conf, name: list.name, ...given }, chained: at > 0 };
}

/** What must be given or work before a rule can be examined. */
type Needs = 'nothing' | 'configuration' | 'attachment';

export interface Rule extends Pick<Finding, 'id' | 'title' | 'level' | 'source'> {
  readonly needs: Needs;
  /** Returns when the rule is kept; throws {@link Broken} or {@link Skipped} otherwise. */
  check(exam: Exam): Promise<void> | void;
}

/** What the rules of a table have in common; a row may differ in it. */
interface Usual extends Pick<Rule, 'source' | 'needs'> {
  /** Throws {@link Skipped} when no rule of the table applies. */
  readonly when?: (exam: Exam) => void;
}

/** A rule of a table; what it leaves out is usual there. */
export type RuleRow = Pick<Rule, 'id' | 'title' | 'level' | 'check'> & Partial<Rule>;

type Check = Rule['check'];

function rowOf(level: Rule['level']) {
  return (
    id: string,
    title: string,
    ...[source, check]: [Check] | [source: string, check: Check]
  ): RuleRow =>
    check === undefined
      ? { id, title, level, check: source as Check }
      : { id, title, level, check, source: source as string };
}

/** A rule that the specification demands. The source is the table's unless it is named. */
export const must = rowOf('must');
/** A rule that runtimes rely on, or that is good practice. */
export const should = rowOf('should');

export function tableOf({ when, ...usual }: Usual, rows: readonly RuleRow[]): Rule[] {
  return rows.map(row => ({
    ...usual,
    ...row,
    async check(exam) {
      when?.(exam);
      await row.check(exam);
    },
  }));
}

export type Report = AnswerOf<'Conformance'>;
export type Finding = Report['rules'][number];

/** The rule is broken; the message says what was observed. */
export class Broken extends Error {}

/** The rule does not apply, or cannot be examined here; the message says why. */
export class Skipped extends Error {}

/** Ends the examination of a rule unless the condition holds. */
export function insist(condition: unknown, seen: string): asserts condition {
  if (!condition) throw new Broken(seen);
}

/** Nothing may be wrong. @param wrong each with what is wrong */
export function insistNone(wrong: readonly string[]): void {
  insist(!wrong.length, wrong.join('; '));
}

/** Ends the examination of a rule that does not apply. */
export function skipUnless(condition: unknown, why: string): asserts condition {
  if (!condition) throw new Skipped(why);
}

export function insistOk(reply: Reply, what: string): void {
  insist(reply.exitCode === 0, `${what}: ${describeReply(reply)}`);
}

/** The plugin must have failed with one of the codes; any code when none is given. */
export function insistError(
  reply: Reply,
  what: string,
  ...codes: (typeof ErrorCode)[keyof typeof ErrorCode][]
): void {
  insist(reply.exitCode !== 0, `${what}: it succeeds`);
  insist(reply.error, `${what}: ${describeReply(reply)}`);
  const isExpected = !codes.length || (codes as number[]).includes(reply.error.code);
  insist(isExpected, `${what}: ${describeReply(reply)}, expected ${codes.join(' or ')}`);
}

export function describeReply({ exitCode, error, stdout, stderr }: Reply): string {
  if (exitCode === 0) return stdout === '' ? 'success' : `success, and prints ${quoteLine(stdout)}`;
  if (error) {
    const details = error.details ? ` (${quoteLine(error.details)})` : '';
    return `code ${error.code} ${quoteLine(error.msg)}${details}`;
  }
  const said = stdout.trim() || stderr.trim();
  return `exit status ${exitCode} without an error object${said === '' ? '' : `, output: ${quoteLine(said)}`}`;
}

function quoteLine(text: string): string {
  return quote(text.trim().replace(/\s+/g, ' '), 200);
}

/** One call, with everything that the rules about all replies inspect. */
export interface Recorded {
  readonly verb: Verb;
  readonly request: string;
  readonly reply: Reply;
  /** It did not end on its own. */
  readonly late: boolean;
  /** Names of the processes that it left running. */
  readonly running: readonly string[];
}

/** The outcome of an ordinary ADD and DEL. */
interface Trial {
  readonly added: Reply;
  /** `main` makes an interface, `ipam` only hands out addresses, `chained` works on what others made. */
  readonly kind: 'main' | 'ipam' | 'chained';
  /** True when ADD itself created CNI_IFNAME. */
  readonly makesInterface: boolean;
  /** What ADD changed on the host and in the container. */
  readonly made: readonly string[];
}

export class Exam {
  readonly subject: Subject;
  readonly calls: Recorded[] = [];
  /** Released versions that the plugin says it supports, oldest first. */
  versions: readonly SpecVersion[] = [];
  #trial: Promise<Trial> | undefined;
  #replies: Promise<ReadonlyMap<SpecVersion, Reply>> | undefined;
  /** Processes that are not the plugin's. */
  readonly #besides = new Set<number>();
  #bare: { host: TestHost; container: { id: string; path: string } } | undefined;

  constructor(subject: Subject) {
    this.subject = subject;
  }

  /** The newest of them; the current version if it reports none. */
  get version(): SpecVersion {
    return this.versions.at(-1) ?? CURRENT_VERSION;
  }

  /** Asks the plugin for its versions, on which everything else depends. */
  async begin(): Promise<void> {
    const { result } = await this.ask('VERSION', { conf: { cniVersion: CURRENT_VERSION } });
    const supported = Array.isArray(result?.supportedVersions) ? result.supportedVersions : [];
    this.versions = supported.filter(
      (one): one is SpecVersion => typeof one === 'string' && isSpecVersion(one),
    );
  }

  end(): void {
    this.#bare?.host.close();
    this.#bare = undefined;
  }

  /** Calls the plugin on a host where it is expected to do nothing. */
  ask(verb: Verb, { conf, env = {} }: Partial<CallOptions> = {}): Promise<Reply> {
    if (this.#bare === undefined) {
      const host = createHost();
      this.#bare = { host, container: host.container() };
    }
    const { host, container } = this.#bare;
    return this.call(host, verb, { conf: conf ?? confOf(this.subject, this.version), container, env });
  }

  /** Gives a rule a fresh host. */
  async scene<T>(play: (scene: Scene) => Promise<T>): Promise<T> {
    const host = createHost();
    let beside: { readonly pid: number } | undefined;
    try {
      const { netns, route } = host.namespace;
      const { bridge, beside: executable } = this.subject;
      if (bridge !== undefined) {
        createLink(route, { name: bridge, kind: 'bridge' });
        setLink(route, getLink(route, bridge).index, { up: true });
      }
      if (executable !== undefined) beside = await startBeside(executable, netns);
      if (beside) this.#besides.add(beside.pid);
      return await play(new Scene(this, host));
    } finally {
      signalGroup(beside?.pid, 'SIGKILL');
      host.close();
    }
  }

  /** An ordinary ADD and DEL, run once. */
  trial(): Promise<Trial> {
    this.#trial ??= this.scene(async scene => {
      await scene.warm();
      const { pod } = scene;
      const { ifname, chained } = this.subject;
      const there = () => findLink(pod.container.route, ifname) !== undefined;
      const existed = there();
      scene.mark();
      const added = await scene.add(pod);
      const makesInterface = !existed && there();
      const made = added.exitCode === 0 ? scene.changesNow() : [];
      await scene.del(pod);
      const interfaces = scene.result?.interfaces ?? [];
      return { added, kind: chained ? 'chained' : interfaces.length ? 'main' : 'ipam', makesInterface, made };
    });
    return this.#trial;
  }

  /** The outcome of ADD in every supported version that has what it needs; run once. */
  addInEachVersion(): Promise<ReadonlyMap<SpecVersion, Reply>> {
    this.#replies ??= this.scene(async scene => {
      const replies = new Map<SpecVersion, Reply>();
      for (const version of this.versions) {
        if (this.subject.chained && !atLeast(version, '0.3.0')) continue;
        const pod = scene.newPod();
        replies.set(version, await scene.add(pod, { version }));
        await scene.del(pod, { version });
        await scene.leave(pod);
      }
      return replies;
    });
    return this.#replies;
  }

  /** Makes and records any call on any host. */
  async call(host: TestHost, verb: Verb, options: CallOptions, alongside = false): Promise<Reply> {
    const { subject } = this;
    const { executable, ifname, pluginDirs, deadlineMs: timeoutMs } = subject;
    const call = { ifname, pluginDirs, timeoutMs, ...options, env: { ...subject.env, ...options.env } };
    let running: readonly string[] = [];
    const { late, reply } = await callExecutable(host.namespace.netns, executable, verb, call, () => {
      if (!alongside) running = endProcessesIn(host.places(), this.#besides);
    });
    this.calls.push({ verb, request: requestOf(call), reply, late, running });
    return reply;
  }
}

/** How a call for a pod differs from the usual one. */
export interface Asking {
  readonly version?: SpecVersion;
  /** Keys added to the configuration. */
  readonly conf?: JsonObject;
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** `null` omits it. */
  readonly prevResult?: Result | null;
  /** Other calls run at the same time. */
  readonly alongside?: boolean;
}

/** Time for the kernel's background work. */
const SETTLE_MS = 500;
const LEAVE_MS = 5000;
const STEP_MS = 10;

export type PodVerb = 'ADD' | 'CHECK' | 'DEL';

export class Scene {
  readonly host: TestHost;
  readonly exam: Exam;
  #pod: Pod | undefined;
  #before: KernelState | undefined;

  constructor(exam: Exam, host: TestHost) {
    this.exam = exam;
    this.host = host;
  }

  newPod(): Pod {
    return makePod(this.host, this.exam.subject);
  }

  /** The pod that the rule is about, made on first use. */
  get pod(): Pod {
    this.#pod ??= this.newPod();
    return this.#pod;
  }

  /** The result of its ADD. */
  get result(): Result | undefined {
    return this.resultOf(this.pod);
  }

  /** Adds and deletes a first pod, so that objects that the plugin keeps for all pods exist. */
  async warm(): Promise<void> {
    const pod = this.newPod();
    await this.add(pod);
    await this.del(pod);
    await this.leave(pod);
  }

  /** Removes the pod's container as a runtime does, and waits until its devices are also gone from the host. */
  leave({ container }: Pod): Promise<void> {
    return removeContainer(this.host.namespace, container, () => this.host.remove(container), LEAVE_MS);
  }

  add(pod: Pod, asking: Asking = {}): Promise<Reply> {
    return this.ask('ADD', pod, asking);
  }

  del(pod: Pod, asking: Asking = {}): Promise<Reply> {
    return this.ask('DEL', pod, asking);
  }

  /** Runs GC, which must keep the given pods. */
  gc(keep: readonly Pod[]): Promise<Reply> {
    const { subject, version } = this.exam;
    const valid = keep.map(({ container }) => ({ containerID: container.id, ifname: subject.ifname }));
    return this.exam.call(this.host, 'GC', { conf: confOf(subject, version), valid });
  }

  status(): Promise<Reply> {
    const { subject, version } = this.exam;
    return this.exam.call(this.host, 'STATUS', { conf: confOf(subject, version) });
  }

  /** The result of ADD, in 1.1.0; undefined when it is not a valid result. */
  resultOf({ result }: Pod): Result | undefined {
    return attempt(() => (isObject(result) ? parseResult(result, this.exam.version) : undefined));
  }

  /** The state with which {@link changes} compares. */
  mark(): void {
    this.#before = this.#state();
  }

  #state(): KernelState {
    return this.host.state(this.exam.subject.watch);
  }

  /** The changes since {@link mark}, ignoring changes to the content of files. */
  changesNow(): string[] {
    const lines = diffKernelStates(this.#before ?? new Map(), this.#state());
    return lines.filter(line => !/^files: file .*: content /.test(line));
  }

  /** Like {@link changesNow}, but gives the kernel time for its own cleanup. */
  async changes(): Promise<string[]> {
    for (let waited = 0; ; waited += STEP_MS) {
      const lines = this.changesNow();
      if (!lines.length || waited >= SETTLE_MS) return lines;
      await Bun.sleep(STEP_MS);
    }
  }

  /** Calls the plugin for a pod. */
  async ask(verb: PodVerb, pod: Pod, asking: Asking = {}): Promise<Reply> {
    const { exam, host } = this;
    const { version = exam.version, conf = {}, env = {}, alongside = false } = asking;
    const isWithout = verb === 'DEL' && !atLeast(version, SINCE.prevResultOnDel);
    const known = verb === 'ADD' ? undefined : this.resultOf(pod);
    const usual = isWithout ? undefined : (known ?? pod.prevResult);
    const prevResult = asking.prevResult === null ? undefined : (asking.prevResult ?? usual);
    const call = {
      conf: { ...confOf(exam.subject, version), ...conf },
      container: pod.container,
      env,
      prevResult: prevResult && renderResult(prevResult, version),
    };
    const reply = await exam.call(host, verb, call, alongside);
    if (verb === 'ADD' && reply.exitCode === 0 && reply.result) pod.result = reply.result;
    return reply;
  }
}

/** A container that a plugin is called for. */
export interface Pod {
  readonly container: Container;
  /** The input of ADD, in 1.1.0; undefined for the first plugin of a chain. */
  readonly prevResult: Result | undefined;
  /** The answer of ADD. */
  result?: JsonObject;
}

let counter = 0;

/** Creates a container, with an interface in it for a chained plugin. */
function makePod(host: TestHost, subject: Subject): Pod {
  const { chained, device, bridge } = subject;
  const { namespace } = host;
  // The device's other end also stays on the host.
  if (device !== undefined && !findLink(namespace.route, device))
    layCable(namespace, device, namespace, `${device.slice(0, 13)}-x`);
  const container = host.container();
  if (bridge !== undefined) {
    const master = getLink(namespace.route, bridge).index;
    layCable(namespace, `port${++counter}`, container, subject.ifname, master);
  }
  if (!chained) return { container, prevResult: undefined };
  return { container, prevResult: connect(namespace, container, subject) };
}

/** A veth pair with the addresses of the result, routed as the first plugin of a chain would do it. */
function connect(host: Namespace, container: Container, { ifname, prevResult }: Subject): Result {
  const result = (structuredClone(prevResult) ?? defaultResult(ifname)) as Result;
  const interfaces = (result.interfaces ?? []).filter(isObject);
  const outer = interfaces.find(({ sandbox }) => !sandbox);
  const inner = interfaces.find(({ sandbox }) => sandbox);
  const hostName = outer?.name ?? `pod${counter}`;
  const name = inner?.name ?? ifname;
  const [hostEnd, end] = layCable(host, hostName, container, name);
  for (const { address, gateway } of result.ips ?? []) {
    const cidr = parseCidr(address);
    addAddress(container.route, end.index, cidr, { nodad: true });
    if (!gateway) continue;
    const ip = parseIp(gateway);
    addAddress(host.route, hostEnd.index, { ip, prefix: cidr.prefix }, { nodad: true });
    const dst = parseCidr(ANYWHERE[cidr.ip.family]);
    addRoute(container.route, { dst, gateway: ip, oif: end.index });
  }
  const macs = { [hostName]: hostEnd.mac, [name]: end.mac };
  return {
    ...result,
    interfaces: (result.interfaces ?? []).map(one => ({
      ...one,
      ...(macs[one.name] === undefined ? {} : { mac: macs[one.name] as string }),
      ...(one.sandbox ? { sandbox: container.path } : {}),
    })),
  };
}

function defaultResult(ifname: string): Result {
  const number = ++counter % 250;
  const gateway = `10.201.${number}.1`;
  return {
    interfaces: [{ name: `pod${number}` }, { name: ifname, sandbox: 'container' }],
    ips: [{ address: `10.201.${number}.2/24`, gateway, interface: 1 }],
    routes: [{ dst: '0.0.0.0/0', gw: gateway }],
    dns: { nameservers: [gateway] },
  };
}
