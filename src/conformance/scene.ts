// What happens on one fresh host during the examination of a rule, and what does a plugin find to work on?
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseResult, type Result, renderResult } from '../cni/result.ts';
import { atLeast, SINCE, type SpecVersion } from '../cni/version.ts';
import { parseCidr } from '../net/cidr.ts';
import { parseIp } from '../net/ip.ts';
import { addAddress } from '../netlink/rtnl/addr.ts';
import { createLink, findLink, getLink, removeLink, setLink } from '../netlink/rtnl/link.ts';
import { addRoute } from '../netlink/rtnl/route.ts';
import { inNetns } from '../sys/netns.ts';
import { trySysctl } from '../sys/sysctl.ts';
import type { CallOptions, Reply, Verb } from '../testing/call.ts';
import type { Container, TestHost } from '../testing/host.ts';
import type { Namespace } from '../testing/namespace.ts';
import { diffKernelStates, type KernelState } from '../testing/state.ts';
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
export function makePod(host: TestHost, subject: Subject): Pod {
  const { chained, device, bridge } = subject;
  if (device !== undefined) ensureDevice(host.namespace, device);
  const container = host.container();
  if (bridge !== undefined) joinBridge(host.namespace, container, bridge, subject.ifname);
  if (!chained) return { container, prevResult: undefined };
  const prevResult = connect(host.namespace, container, subject);
  return { container, prevResult };
}

/** The device's other end also stays on the host. */
function ensureDevice({ route }: Namespace, name: string): void {
  if (findLink(route, name)) return;
  const other = `${name.slice(0, 13)}-x`;
  createLink(route, { name, kind: 'veth', peer: { name: other } });
  for (const end of [name, other]) setLink(route, getLink(route, end).index, { up: true });
}

/** Makes the bridge of the subject, if it has one. */
export function makeBridge({ route }: Namespace, { bridge }: Subject): void {
  if (bridge === undefined) return;
  createLink(route, { name: bridge, kind: 'bridge' });
  setLink(route, getLink(route, bridge).index, { up: true });
}

/** A veth pair between the bridge and the container. */
function joinBridge({ route }: Namespace, container: Container, bridge: string, ifname: string): void {
  const port = `port${++counter}`;
  const master = getLink(route, bridge).index;
  createLink(route, {
    name: port,
    kind: 'veth',
    master,
    peer: { name: ifname, netnsFd: container.netns.fd },
  });
  for (const [socket, name] of [
    [route, port],
    [container.route, ifname],
  ] as const)
    setLink(socket, getLink(socket, name).index, { up: true });
}

/** A veth pair with the addresses of the result, routed as the first plugin of a chain would do it. */
function connect(host: Namespace, container: Container, { ifname, prevResult }: Subject): Result {
  const result = (structuredClone(prevResult) ?? defaultResult(ifname)) as Result;
  const interfaces = (result.interfaces ?? []).filter(isObject);
  const outer = interfaces.find(({ sandbox }) => !sandbox);
  const inner = interfaces.find(({ sandbox }) => sandbox);
  const hostName = outer?.name ?? `pod${counter}`;
  const name = inner?.name ?? ifname;
  createLink(host.route, { name: hostName, kind: 'veth', peer: { name, netnsFd: container.netns.fd } });
  const [hostEnd, end] = [getLink(host.route, hostName), getLink(container.route, name)];
  // During duplicate address detection the addresses would not be usable for the plugin.
  inNetns(host.netns, () => trySysctl(`net/ipv6/conf/${hostName}/accept_dad`, '0'));
  inNetns(container.netns, () => trySysctl(`net/ipv6/conf/${name}/accept_dad`, '0'));
  setLink(host.route, hostEnd.index, { up: true });
  setLink(container.route, end.index, { up: true });
  for (const { address, gateway } of result.ips ?? []) {
    const cidr = parseCidr(address);
    addAddress(container.route, end.index, cidr, { nodad: true });
    if (!gateway) continue;
    const ip = parseIp(gateway);
    addAddress(host.route, hostEnd.index, { ip, prefix: cidr.prefix }, { nodad: true });
    const dst = parseCidr(cidr.ip.family === 4 ? '0.0.0.0/0' : '::/0');
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
