// What backs the Call that a verb works with?
import type { CniArgs } from '../cni/cni-args.ts';
import type { CniEnv, Command } from '../cni/env.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import type { JsonObject } from '../cni/json.ts';
import { type AttachmentKey, VALID_ATTACHMENTS } from '../cni/plugin-config.ts';
import type { Result } from '../cni/result.ts';
import type { SpecVersion } from '../cni/version.ts';
import type { Log } from '../log.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from '../netlink/socket.ts';
import { closeNetns, findNetns, inNetns, type Netns, openNetns, ownNetns, sameNetns } from '../sys/netns.ts';
import type { Call, Delegate, Done } from './define.ts';
import { findDelegate } from './delegate.ts';
import type { CallSibling, Workplace } from './invocation.ts';

/** What is known about an invocation before any kernel call. */
export interface CallFacts {
  readonly env: CniEnv;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly args: CniArgs;
  readonly network: string;
  readonly version: SpecVersion;
  readonly conf: unknown;
  readonly request: JsonObject;
  readonly requestText: string;
  readonly prevResult: Result | undefined;
  readonly log: Log;
  readonly callSibling: CallSibling;
  /** Name of the link. */
  readonly link: string;
  readonly workplace: Workplace | undefined;
}

/** Verbs after which nobody builds on what the link did before the whole chain is through. */
const MAY_WAIT: readonly Command[] = ['DEL', 'GC'];

/** A {@link Call} on the real system: opens what is asked for once and closes it at the end. */
export class LiveCall implements Call<never> {
  readonly #facts: CallFacts;
  readonly #undo: { what: string; undo: () => Done }[] = [];
  readonly #open: { close(): void }[] = [];
  #host?: NetlinkSocket;
  #hostNft?: NetlinkSocket;
  #container?: NetlinkSocket;
  #netns?: Netns | undefined;
  #waits = false;

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
    return this.#facts.args;
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
    // The second name is what libcni sent by mistake before it learned the specification's.
    const list = this.request[VALID_ATTACHMENTS] ?? this.request['cni.dev/attachments'];
    return Array.isArray(list) ? (list as AttachmentKey[]) : undefined;
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
    this.#container ??= this.#keep(inNetns(this.containerNetns, () => new NetlinkSocket(NETLINK_ROUTE)));
    return this.#container;
  }

  get containerNetns(): Netns {
    if (this.#netns === undefined) {
      try {
        this.#netns = openNetns(this.env.netns);
      } catch (cause) {
        throw new CniError(ErrorCode.invalidNetns, (cause as Error).message, { cause });
      }
    }
    return this.#netns;
  }

  findContainerNetns(): Netns | undefined {
    this.#netns ??= findNetns(this.env.netns);
    return this.#netns;
  }

  onFailure(what: string, undo: () => Done): void {
    this.#undo.push({ what, undo });
  }

  async removeLinks(links: readonly Link[], then: () => Done = () => {}): Promise<void> {
    const { link: by, workplace } = this.#facts;
    if (workplace && MAY_WAIT.includes(this.env.command)) {
      this.#waits = true;
      return workplace.removals.add({ links, then, by, close: () => this.#release() });
    }
    if (links.length === 0) return then();
    // Most links have no device to delete.
    const { Removals } = await import('./removals.ts');
    const own = new Removals();
    own.add({ links, then, by: '', close() {} });
    await own.settle(() => this.host);
  }

  delegate(type: string, request: JsonObject = this.request): Delegate {
    const { environment, callSibling } = this.#facts;
    return findDelegate(type, {
      env: this.env,
      environment,
      request,
      version: this.version,
      callSibling,
    });
  }

  /**
   * Refuses a namespace that is none, or is the link's own: the reference notices the latter only after the work is
   * done. On DEL a namespace that is gone is an ordinary case.
   * @throws CniError 8
   */
  guardNetns(use: 'required' | 'unused'): void {
    const { command, netnsOverride } = this.env;
    if (use === 'unused' || command === 'GC' || command === 'STATUS') return;
    const netns = command === 'DEL' ? this.findContainerNetns() : this.containerNetns;
    if (netns === undefined || netnsOverride) return;
    if (!sameNetns(ownNetns(), netns)) return;
    throw new CniError(
      ErrorCode.invalidNetns,
      `Cannot use "${netns.path}" as network namespace of the container: it is the one this plugin runs in`,
      { details: 'set CNI_NETNS_OVERRIDE=1 if that is intended' },
    );
  }

  /** Takes back the steps of a failed ADD, last first. @returns what could not be taken back */
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
    // What was put off still works with the sockets.
    if (!this.#waits) this.#release();
  }

  #release(): void {
    for (const open of this.#open.splice(0)) open.close();
    if (this.#netns) closeNetns(this.#netns);
    this.#netns = undefined;
  }

  #keep(socket: NetlinkSocket): NetlinkSocket {
    this.#open.push(socket);
    return socket;
  }
}
