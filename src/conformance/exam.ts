// What does an examination remember from one rule to the next?
import { atLeast, CURRENT_VERSION, isSpecVersion, type SpecVersion } from '../cni/version.ts';
import { findLink } from '../netlink/rtnl/link.ts';
import { inNetns, type Netns } from '../sys/netns.ts';
import {
  type CallOptions,
  environmentOf,
  type Reply,
  requestOf,
  toReply,
  type Verb,
} from '../testing/call.ts';
import { createHost, type TestHost } from '../testing/host.ts';
import { nameOfProcess, processesIn } from '../testing/processes.ts';
import { killGroup, runIn } from '../testing/run-in.ts';
import { makeBridge, Scene } from './scene.ts';
import { confOf, type Subject } from './subject.ts';

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
export interface Trial {
  readonly added: Reply;
  /** `main` makes an interface, `ipam` only hands out addresses, `chained` works on what others made. */
  readonly kind: 'main' | 'ipam' | 'chained';
  /** True when ADD itself created CNI_IFNAME. */
  readonly makesInterface: boolean;
  /** What ADD changed on the host and in the container. */
  readonly made: readonly string[];
}

/** How a call without a pod differs from the usual one. */
export interface Question {
  readonly conf?: CallOptions['conf'];
  readonly env?: CallOptions['env'];
}

/** Time for a process that ends shortly after the plugin. */
const GRACE_MS = 100;

/** The examination of one plugin. */
export class Exam {
  readonly subject: Subject;
  readonly calls: Recorded[] = [];
  #versions: readonly SpecVersion[] = [];
  #trial: Promise<Trial> | undefined;
  #replies: Promise<ReadonlyMap<SpecVersion, Reply>> | undefined;
  /** Processes that are not the plugin's. */
  readonly #besides = new Set<number>();
  #bare: { host: TestHost; container: { id: string; path: string } } | undefined;

  constructor(subject: Subject) {
    this.subject = subject;
  }

  /** Released versions that the plugin says it supports, oldest first. */
  get versions(): readonly SpecVersion[] {
    return this.#versions;
  }

  /** The newest of them; the current version if it reports none. */
  get version(): SpecVersion {
    return this.#versions.at(-1) ?? CURRENT_VERSION;
  }

  /** Asks the plugin for its versions, on which everything else depends. */
  async begin(): Promise<void> {
    const { result } = await this.ask('VERSION', { conf: { cniVersion: CURRENT_VERSION } });
    const supported = Array.isArray(result?.supportedVersions) ? result.supportedVersions : [];
    this.#versions = supported.filter(
      (one): one is SpecVersion => typeof one === 'string' && isSpecVersion(one),
    );
  }

  end(): void {
    this.#bare?.host.close();
    this.#bare = undefined;
  }

  /** Calls the plugin on a host where it is expected to do nothing. */
  ask(verb: Verb, { conf, env = {} }: Question = {}): Promise<Reply> {
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
    let beside: Beside | undefined;
    try {
      makeBridge(host.namespace, this.subject);
      if (this.subject.beside !== undefined)
        beside = await startBeside(this.subject.beside, host.namespace.netns);
      if (beside) this.#besides.add(beside.pid);
      return await play(new Scene(this, host));
    } finally {
      beside?.end();
      host.close();
    }
  }

  /** An ordinary ADD and DEL, run once. */
  trial(): Promise<Trial> {
    this.#trial ??= this.scene(async scene => {
      await scene.warm();
      const pod = scene.pod();
      const { ifname, chained } = this.subject;
      const there = () => findLink(pod.container.route, ifname) !== undefined;
      const existed = there();
      const before = scene.state();
      const added = await scene.add(pod);
      const makesInterface = !existed && there();
      const made = added.exitCode === 0 ? await scene.changesNow(before) : [];
      await scene.del(pod);
      const interfaces = scene.resultOf(pod)?.interfaces ?? [];
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
        const pod = scene.pod();
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
    const { executable, ifname, pluginDirs, deadlineMs } = subject;
    const call = { ifname, pluginDirs, ...options };
    const request = requestOf(call);
    const { late, group, ...ended } = await runIn(host.namespace.netns, [executable], {
      env: { ...subject.env, ...environmentOf(verb, call) },
      stdin: request,
      timeoutMs: deadlineMs,
    });
    const running = alongside ? [] : await this.#endLeftovers(host);
    killGroup(group);
    const reply = toReply(ended);
    this.calls.push({ verb, request, reply, late, running });
    return reply;
  }

  async #endLeftovers(host: TestHost): Promise<string[]> {
    const inodes = host.places().map(({ netns }) => netns.ino);
    const found = processesIn(inodes).filter(pid => !this.#besides.has(pid));
    if (!found.length) return [];
    await Bun.sleep(GRACE_MS);
    // What came since only visits the namespace, as a GC on this machine does.
    const left = processesIn(inodes).filter(pid => found.includes(pid));
    return left.map(pid => {
      const name = nameOfProcess(pid);
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It has just ended.
      }
      return name;
    });
  }
}

/** Time until it is ready. */
const READY_MS = 10_000;

/** A program that runs until it is ended. */
interface Beside {
  readonly pid: number;
  /** Ends it, with everything that it has started. */
  end(): void;
}

/**
 * Starts an executable in a namespace, and waits until it has written something to its standard error, which says that it is ready.
 * @throws Error with what it wrote when it ended instead, or was not ready in time
 */
async function startBeside(executable: string, netns: Netns): Promise<Beside> {
  const child = inNetns(netns, () =>
    Bun.spawn([executable], {
      env: { PATH: process.env.PATH },
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'pipe',
      detached: true,
    }),
  );
  const end = (): void => killGroup(child.pid);
  const timer = setTimeout(end, READY_MS);
  const reader = child.stderr.getReader();
  const { done } = await reader.read();
  clearTimeout(timer);
  if (done) throw new Error(`Cannot use "${executable}": it ended, or wrote nothing to its standard error`);
  void readOn(reader);
  return { pid: child.pid, end };
}

/** Otherwise the program would wait for the pipe to be read. */
async function readOn(reader: { read(): Promise<{ done: boolean }> }): Promise<void> {
  while (!(await reader.read()).done);
}
