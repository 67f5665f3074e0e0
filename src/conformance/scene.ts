// What happens on one fresh host during the examination of a rule?
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseResult, type Result, renderResult } from '../cni/result.ts';
import { atLeast, SINCE, type SpecVersion } from '../cni/version.ts';
import { createLink, findLink, removeLink } from '../netlink/rtnl/link.ts';
import type { CallOptions, Reply, Verb } from '../testing/call.ts';
import type { TestHost } from '../testing/host.ts';
import { diffKernelStates, type KernelState } from '../testing/state.ts';
import { makePod, type Pod } from './pod.ts';
import { confOf, type Subject } from './subject.ts';

/** What a scene needs from its examination. */
export interface Examiner {
  readonly subject: Subject;
  readonly version: SpecVersion;
  /** Any call on any host; `alongside`: other calls run at the same time. */
  call(host: TestHost, verb: Verb, options: CallOptions, alongside?: boolean): Promise<Reply>;
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

  /** Adds and deletes a first pod, so that objects that the plugin keeps for all pods exist. */
  async warm(): Promise<void> {
    const pod = this.pod();
    await this.add(pod);
    await this.del(pod);
    await this.leave(pod);
  }

  /** Removes the pod's container as a runtime does, and waits until its devices are also gone from the host. */
  async leave({ container }: Pod): Promise<void> {
    const { namespace } = this.host;
    // All devices of a namespace are deleted together, some time after its last user ends. This one shows when that happens.
    const [witness, peer] = [`w${container.name.slice(-12)}`, 'witness'];
    createLink(namespace.route, {
      name: witness,
      kind: 'veth',
      peer: { name: peer, netnsFd: container.netns.fd },
    });
    this.host.remove(container);
    for (let waited = 0; findLink(namespace.route, witness); waited += STEP_MS) {
      // Something keeps the namespace open, for example an orphan process.
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

  /** Runs GC, which must keep the given pods. */
  gc(keep: readonly Pod[]): Promise<Reply> {
    const { exam, host } = this;
    const { ifname } = exam.subject;
    const valid = keep.map(({ container }) => ({ containerID: container.id, ifname }));
    return exam.call(host, 'GC', { conf: confOf(exam.subject, exam.version), valid });
  }

  /** The result of ADD, in 1.1.0; undefined when it is not a valid result. */
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

  /** The changes since an earlier state, ignoring changes to the content of files. */
  changesNow(before: KernelState): string[] {
    return diffKernelStates(before, this.state()).filter(line => !/^files: file .*: content /.test(line));
  }

  /** Like {@link changesNow}, but gives the kernel time for its own cleanup. */
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
