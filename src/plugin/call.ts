// How is the Call implemented that a verb works with?
import { type CniArgs, parseCniArgs } from '../cni/cni-args.ts';
import type { CniEnv, Command } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { type AttachmentKey, VALID_ATTACHMENTS } from '../cni/plugin-config.ts';
import type { Result } from '../cni/result.ts';
import type { SpecVersion } from '../cni/version.ts';
import type { Log } from '../log.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { type Netns, ownNetns, sameNetns } from '../sys/netns.ts';
import { ContainerNetns } from './container-netns.ts';
import type { Call, Delegate, Done } from './define.ts';
import { findDelegate } from './delegate.ts';
import { isAttached } from './generation.ts';
import type { CallPlugin, WorkerState } from './invocation.ts';
import type { KeptAttachments } from './kept.ts';
import { findStranger } from './netns-owner.ts';

/** What is known about an invocation before any kernel call. */
export interface CallFacts {
  readonly env: CniEnv;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly network: string;
  readonly version: SpecVersion;
  readonly conf: unknown;
  readonly request: JsonObject;
  readonly requestText: string;
  readonly prevResult: Result | undefined;
  readonly log: Log;
  readonly callSibling: CallPlugin;
  /** Name of the plugin. */
  readonly link: string;
  readonly workplace: WorkerState | undefined;
  /** What GC keeps, given the runtime's list; undefined for other verbs. */
  readonly keeping: ((listed: readonly AttachmentKey[]) => KeptAttachments) | undefined;
}

/** Verbs whose device removals may wait until the chain's last plugin was called: no plugin depends on them before that. */
const MAY_WAIT: readonly Command[] = ['DEL', 'GC'];

/** A {@link Call} on the real system: opens each resource once, when it is first used, and closes it at the end. */
export class LiveCall implements Call<never> {
  readonly #facts: CallFacts;
  readonly #undo: { what: string; undo: () => Done }[] = [];
  readonly #open: { close(): void }[] = [];
  #args?: CniArgs;
  #host?: NetlinkSocket;
  #hostNft?: NetlinkSocket;
  #netns?: ContainerNetns | undefined;
  /** Whether the namespace may have become another attachment's. */
  #mayBeOthers = false;
  /** The path refers to a namespace that must not be touched: DEL treats it as gone. */
  #isGone = false;
  /** No other attachment's interface was in the namespace. Not kept for the next plugin of the chain: one may be there by then. */
  #isCleared = false;
  #waits = false;
  #kept?: KeptAttachments | undefined;

  constructor(facts: CallFacts) {
    this.#facts = facts;
  }

  get env(): CniEnv {
    return this.#facts.env;
  }
  get environment(): CallFacts['environment'] {
    return this.#facts.environment;
  }
  get args(): CniArgs {
    this.#args ??= parseCniArgs(this.env.args);
    return this.#args;
  }
  get network(): string {
    return this.#facts.network;
  }
  get version(): SpecVersion {
    return this.#facts.version;
  }
  get conf(): never {
    return this.#facts.conf as never;
  }
  get request(): JsonObject {
    return this.#facts.request;
  }
  get requestText(): string {
    return this.#facts.requestText;
  }
  get prevResult(): Result | undefined {
    return this.#facts.prevResult;
  }
  get log(): Log {
    return this.#facts.log;
  }

  get validAttachments(): readonly AttachmentKey[] | undefined {
    // libcni sent the second name by mistake before it adopted the specification's.
    const list = this.request[VALID_ATTACHMENTS] ?? this.request['cni.dev/attachments'];
    return Array.isArray(list) ? (list as AttachmentKey[]) : undefined;
  }

  get kept(): KeptAttachments | undefined {
    const listed = this.validAttachments;
    if (listed !== undefined) this.#kept ??= this.#facts.keeping?.(listed);
    return this.#kept;
  }

  get host(): NetlinkSocket {
    const { workplace } = this.#facts;
    if (workplace) return workplace.sockets.route;
    this.#host ??= this.#keep(new NetlinkSocket(NETLINK_ROUTE));
    return this.#host;
  }

  get hostNft(): NetlinkSocket {
    const { workplace } = this.#facts;
    if (workplace) return workplace.sockets.netfilter;
    this.#hostNft ??= this.#keep(new NetlinkSocket(NETLINK_NETFILTER));
    return this.#hostNft;
  }

  get container(): NetlinkSocket {
    return this.#ownNetns().socket;
  }

  get containerNetns(): Netns {
    return this.#ownNetns().netns;
  }

  #ownNetns(): ContainerNetns {
    const netns = this.#openNetns();
    const stranger = this.#askForStranger(netns);
    if (stranger === undefined) return netns;
    throw new CniError(ErrorCode.invalidNetns, this.#refusal(stranger), {
      details: 'run DEL for this container; the namespace was not changed',
    });
  }

  findContainerNetns(again = false): Netns | undefined {
    if (this.#isGone) return undefined;
    const netns = this.#findNetns();
    if (again) this.#isCleared = false;
    const stranger = netns && this.#askForStranger(netns);
    if (stranger !== undefined) this.#countAsGone(stranger);
    return this.#isGone ? undefined : netns?.netns;
  }

  onFailure(what: string, undo: () => Done): void {
    this.#undo.push({ what, undo });
  }

  async removeDevices(links: readonly Link[], then: () => Done = () => {}): Promise<void> {
    const { link: by, workplace } = this.#facts;
    if (workplace && MAY_WAIT.includes(this.env.command)) {
      this.#waits = true;
      return workplace.removals.add({ devices: links, then, by, close: () => this.#release() });
    }
    if (links.length === 0) return then();
    // Most plugins have no device to delete.
    const { Removals } = await import('./removals.ts');
    const own = new Removals();
    own.add({ devices: links, then, by: '', close() {} });
    await own.settle(() => this.host);
  }

  delegate(type: string, request: JsonObject = this.request): Delegate {
    const { environment, callSibling } = this.#facts;
    return findDelegate(type, {
      env: this.env,
      environment: this.#isGone ? { ...environment, CNI_NETNS: '' } : environment,
      request,
      version: this.version,
      callSibling,
    });
  }

  /**
   * Refuses a path that is not a namespace, or is the plugin's own: the reference notices the latter only after the
   * work is done. On DEL the namespace counts as gone in either case, because that must not prevent releasing a lease: the
   * process that had the namespace has ended, and another one has its id.
   *
   * CHECK and DEL run some time after ADD. If the path refers to another container's namespace by that time,
   * CHECK is refused and DEL proceeds without a namespace, as soon as the plugin uses it.
   * @throws CniError 8
   */
  guardNetns(use: 'required' | 'unused'): void {
    const { command, netnsOverride } = this.env;
    if (use === 'unused' || command === 'GC' || command === 'STATUS') return;
    const opened = command === 'DEL' ? this.#findNetns() : this.#openNetns();
    if (opened === undefined) return;
    const isOwn = sameNetns(ownNetns(), opened.netns);
    if (isOwn && !netnsOverride) this.#refuseOwn();
    this.#mayBeOthers = !isOwn && (command !== 'ADD' || this.#isChainedByOther());
  }

  /**
   * Whether an ADD works on the interface of a result that another program passes on: what CHECK would refuse and DEL would not undo must
   * not be done. Our runner calls a whole chain for one container.
   */
  #isChainedByOther(): boolean {
    const { env, prevResult } = this;
    const isTold = prevResult?.interfaces?.some(({ name, sandbox }) => name === env.ifname && sandbox);
    return Boolean(isTold) && this.#facts.workplace === undefined;
  }

  #refuseOwn(): void {
    const problem = 'it is the one this plugin runs in';
    if (this.env.command === 'DEL') {
      this.#countAsGone(problem);
      return;
    }
    throw new CniError(ErrorCode.invalidNetns, this.#refusal(problem), {
      details: 'set CNI_NETNS_OVERRIDE=1 if that is intended',
    });
  }

  #countAsGone(problem: string): void {
    this.#isGone = true;
    this.log.warn(`${this.#refusal(problem)}; treating it as deleted`);
  }

  #refusal(problem: string): string {
    const { netns, containerId } = this.env;
    return `Cannot use "${netns}" as network namespace of container "${containerId}": ${problem}`;
  }

  #askForStranger(opened: ContainerNetns): string | undefined {
    if (!this.#mayBeOthers || this.#isCleared) return undefined;
    const { network, prevResult, host } = this;
    const { containerId, ifname } = this.env;
    const owner = { network, containerId, ifname };
    const stranger = findStranger({
      owner,
      prevResult,
      host,
      container: opened.socket,
      netnsFd: opened.netns.fd,
      isAttached: named => isAttached(this.#facts.environment, named),
    });
    // A negative result is remembered; a namespace that must not be touched is refused each time.
    this.#isCleared = stranger === undefined;
    return stranger;
  }

  #openNetns(): ContainerNetns {
    const { workplace } = this.#facts;
    const { netns: path } = this.env;
    try {
      this.#netns ??= workplace ? workplace.netns.open(path) : new ContainerNetns(path);
    } catch (cause) {
      throw new CniError(ErrorCode.invalidNetns, (cause as Error).message, { cause });
    }
    return this.#netns;
  }

  /** Like {@link #openNetns}, but undefined when there is no namespace at the path. */
  #findNetns(): ContainerNetns | undefined {
    if (this.env.netns === '') return undefined;
    try {
      return this.#openNetns();
    } catch {
      return undefined;
    }
  }

  /** Undoes the steps of a failed ADD, last first. @returns what could not be undone */
  async undo(): Promise<Error[]> {
    const problems: Error[] = [];
    for (const { what, undo } of this.#undo.reverse()) {
      try {
        await undo();
      } catch (cause) {
        problems.push(new Error(`Cannot ${what}`, { cause }));
      }
    }
    return problems;
  }

  close(): void {
    // Deferred work still uses the sockets.
    if (!this.#waits) this.#release();
  }

  #release(): void {
    for (const open of this.#open.splice(0)) open.close();
    this.#netns?.release();
    this.#netns = undefined;
  }

  #keep(socket: NetlinkSocket): NetlinkSocket {
    this.#open.push(socket);
    return socket;
  }
}
