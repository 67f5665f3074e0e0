// What happens on one fresh host while a rule is examined?
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseResult, type Result, renderResult } from '../cni/result.ts';
import { atLeast, SINCE, type SpecVersion } from '../cni/version.ts';
import { createLink, findLink, removeLink } from '../netlink/rtnl/link.ts';
import type { CallOptions, Reply, Verb } from '../testing/call.ts';
import type { TestHost } from '../testing/host.ts';
import { diffKernelStates, type KernelState } from '../testing/state.ts';
import { makePod, type Pod } from './pod.ts';
import { confOf, type Subject } from './subject.ts';

/** What a scene needs of the examination that it belongs to. */
export interface Examiner {
  readonly subject: Subject;
  readonly version: SpecVersion;
  /** Any call on any host; `alongside`: other calls run at the same time. */
  call(host: TestHost, verb: Verb, options: CallOptions, alongside?: boolean): Promise<Reply>;
}

/** What differs from an ordinary call for a pod. */
export interface Asking {
  readonly version?: SpecVersion;
  /** Keys that are added to the configuration. */
  readonly conf?: JsonObject;
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** `null` leaves it away. */
  readonly prevResult?: Result | null;
  /** Other calls run at the same time. */
  readonly alongside?: boolean;
}

/** Time for what the kernel does in the background. */
const SETTLE_MS = 500;
const LEAVE_MS = 5000;
const STEP_MS = 10;

/** One host, and the pods on it. */
export class Scene {
  readonly host: TestHost;
  readonly exam: Examiner;

  constructor(exam: Examiner, host: TestHost) {
    this.exam = exam;
    this.host = host;
  }

  pod(): Pod {
    return makePod(this.host, this.exam.subject);
  }

  /** Lets a first pod come and go, so that what the plugin keeps for all of them is there. */
  async warm(): Promise<void> {
    const pod = this.pod();
    await this.add(pod);
    await this.del(pod);
    await this.leave(pod);
  }

  /** Removes the pod's container as a runtime does, and waits until its devices are gone from the host too. */
  async leave({ container }: Pod): Promise<void> {
    const { namespace } = this.host;
    // All devices of a namespace go at once, some time after the last user: this one is there to be seen going.
    const [witness, peer] = [`w${container.name.slice(-12)}`, 'witness'];
    createLink(namespace.route, {
      name: witness,
      kind: 'veth',
      peer: { name: peer, netnsFd: container.netns.fd },
    });
    this.host.remove(container);
    for (let waited = 0; findLink(namespace.route, witness); waited += STEP_MS) {
      // Somebody holds the namespace open, a process that was left behind for example.
      if (waited > LEAVE_MS) return removeLink(namespace.route, witness);
      await Bun.sleep(STEP_MS);
    }
  }

  async add(pod: Pod, asking: Asking = {}): Promise<Reply> {
    const reply = await this.#ask('ADD', pod, asking, pod.prevResult);
    if (reply.exitCode === 0 && reply.result) pod.result = reply.result;
    return reply;
  }

  check(pod: Pod, asking: Asking = {}): Promise<Reply> {
    return this.#ask('CHECK', pod, asking, this.resultOf(pod) ?? pod.prevResult);
  }

  del(pod: Pod, asking: Asking = {}): Promise<Reply> {
    const { version = this.exam.version } = asking;
    const known = atLeast(version, SINCE.prevResultOnDel);
    return this.#ask('DEL', pod, asking, known ? (this.resultOf(pod) ?? pod.prevResult) : undefined);
  }

  /** GC that is to keep the given pods. */
  gc(keep: readonly Pod[]): Promise<Reply> {
    const { exam, host } = this;
    const { ifname } = exam.subject;
    const valid = keep.map(({ container }) => ({ containerID: container.id, ifname }));
    return exam.call(host, 'GC', { conf: confOf(exam.subject, exam.version), valid });
  }

  /** What ADD answered, in 1.1.0; undefined when that is no result. */
  resultOf({ result }: Pod): Result | undefined {
    try {
      return isObject(result) ? parseResult(result, this.exam.version) : undefined;
    } catch {
      return undefined;
    }
  }

  state(): KernelState {
    return this.host.state(this.exam.subject.watch);
  }

  /** What is different from an earlier moment. What is in a file does not count. */
  changesNow(before: KernelState): string[] {
    return diffKernelStates(before, this.state()).filter(line => !/^files: file .*: content /.test(line));
  }

  /** As {@link changesNow}, but gives the kernel time to undo what it undoes by itself. */
  async changes(before: KernelState): Promise<string[]> {
    for (let waited = 0; ; waited += STEP_MS) {
      const lines = this.changesNow(before);
      if (!lines.length || waited >= SETTLE_MS) return lines;
      await Bun.sleep(STEP_MS);
    }
  }

  #ask(verb: string, { container }: Pod, asking: Asking, usual: Result | undefined): Promise<Reply> {
    const { exam, host } = this;
    const { version = exam.version, conf = {}, env = {}, alongside = false } = asking;
    const prevResult = asking.prevResult === null ? undefined : (asking.prevResult ?? usual);
    return exam.call(
      host,
      verb,
      {
        conf: { ...confOf(exam.subject, version), ...conf },
        container,
        env,
        prevResult: prevResult && renderResult(prevResult, version),
      },
      alongside,
    );
  }
}
