// How is the Call implemented that a verb works with, and how does it call another plugin?

import { isAttached } from '../attachments/generation.ts';
import {
  findPluginFile,
  isOwnExecutable,
  type PluginFile,
  parsePluginDirs,
} from '../chain/config/find-plugin.ts';
import type { ExecOutcome } from '../chain/run/exec-plugin.ts';
import { startPlugin } from '../chain/run/segment.ts';
import { type CniArgs, type CniEnv, type Command, parseCniArgs } from '../cni/env.ts';
import { type CalledPlugin, CniError, decodingFailure, ErrorCode } from '../cni/errors.ts';
import { failureOf, type Outcome, parseHandoverReply, parseReply, startFailure } from '../cni/invocation.ts';
import { decode, type JsonObject, memberOf } from '../cni/json.ts';
import { parseResult, type Result, type SpecVersion } from '../cni/result.ts';
import { type AttachmentKey, AttachmentKeys, VALID_ATTACHMENTS } from '../cni/schemas.ts';
import type { Log } from '../log.ts';
import type { Link } from '../netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { isShortage } from '../sys/errno.ts';
import { type Netns, ownNetns, sameNetns } from '../sys/netns.ts';
import { GRACE_MS } from '../wait.ts';
import type { Call, CallFacts, Delegate, Done, KeptAttachments, Undo } from './define.ts';
import { type CallPlugin, ContainerNetns, HostSockets, type WorkerState } from './invocation.ts';
import { findStranger } from './netns-owner.ts';

/** Shorter than the runner's deadline for a plugin, so the calling plugin still has time to report what happened. */
const DELEGATE_DEADLINE_MS = 50_000;

interface Delegator extends Pick<Call, 'env' | 'environment' | 'request' | 'version'> {
  readonly callSibling: CallPlugin;
}

/**
 * The plugin named `type` on `CNI_PATH`. If it is this same executable under another name, it is served in this
 * process; a foreign plugin is executed. This is decided per call by device and inode, so replacing the file in the
 * directory replaces the plugin at once.
 * @throws CniError when no such plugin is found
 */
export function findDelegate(type: string, delegator: Delegator): Delegate {
  const file = findPluginFile(type, parsePluginDirs(delegator.env.path));
  const call = async (command: Command) => {
    const { outcome, plugin } = await callDelegate(type, file, command, delegator);
    return command === 'ADD' ? parseReply(outcome.stdout, plugin) : undefined;
  };
  return {
    async add() {
      const reply = await call('ADD');
      if (reply === undefined) {
        throw decodingFailure(`Cannot use reply of plugin "${type}": it printed nothing`);
      }
      return parseResult(reply, delegator.version, `result of plugin "${type}"`);
    },
    check: async () => void (await call('CHECK')),
    async handOver() {
      if (!isOwnExecutable(file.path, file.stat)) return [];
      const { outcome } = await callDelegate(type, file, 'CHECK', delegator);
      return parseHandoverReply(outcome.stdout ?? '') ?? [];
    },
    del: async () => void (await call('DEL')),
    gc: async () => void (await call('GC')),
    status: async () => void (await call('STATUS')),
  };
}

async function callDelegate(
  type: string,
  { path, stat }: PluginFile,
  command: Command,
  delegator: Delegator,
): Promise<{ readonly outcome: Outcome; readonly plugin: CalledPlugin }> {
  const { environment, request, callSibling } = delegator;
  const env = { ...environment, CNI_COMMAND: command };
  const stdin = JSON.stringify(request);
  const sibling = isOwnExecutable(path, stat)
    ? callSibling(type, { env, readStdin: () => stdin })
    : undefined;
  const outcome: Outcome & Pick<ExecOutcome, 'ended'> = sibling
    ? { ...(await sibling), stderr: '' }
    : await execute(path, env, stdin);
  const plugin: CalledPlugin = {
    network: String(memberOf(request, 'name')),
    type,
    index: 0,
    executable: path,
    verb: command,
    stderr: outcome.stderr,
  };
  const { ended } = outcome;
  if (ended !== undefined) {
    throw new CniError(ErrorCode.unknown, `Plugin "${type}" ${ENDED_FOR[ended]}`, {
      plugin: { ...plugin, ended },
    });
  }
  if (outcome.exitCode !== 0) throw failureOf(outcome, plugin);
  return { outcome, plugin };
}

/**
 * Ends shortly after the deadline at the latest, whatever the plugin prints and even if a child holds its pipes open. A runner that gives up
 * ends the group of this process, which is not the plugin's, and calls DEL: what the plugin made after that would stay.
 */
async function execute(path: string, env: Delegator['environment'], stdin: string): Promise<ExecOutcome> {
  const interrupt = new AbortController();
  const { signal } = interrupt;
  const running = startPlugin({ path, env, deadlineMs: DELEGATE_DEADLINE_MS, signal });
  const onSignal = (): void => {
    interrupt.abort();
    // Before the runner kills this process.
    setTimeout(() => running.discard(), GRACE_MS / 2);
  };
  process.once('SIGTERM', onSignal);
  const outcome = await running.send(stdin);
  if (signal.aborted) process.exit(ENDED_BY_SIGTERM);
  process.removeListener('SIGTERM', onSignal);
  if (outcome.spawnError === undefined) return outcome;
  throw startFailure(path, outcome.spawnError);
}

/** Exit status, as of a shell. */
const ENDED_BY_SIGTERM = 128 + 15;

/** Why it was ended, since its output may not say so. */
const ENDED_FOR: Readonly<Record<NonNullable<ExecOutcome['ended']>, string>> = {
  deadline: `did not finish within ${DELEGATE_DEADLINE_MS / 1000} s: its process group was killed`,
  output: 'printed more than 16 MiB: it was killed',
  interrupt: 'was interrupted',
};

/** What is known about an invocation before any kernel call. */
interface KnownCall extends CallFacts {
  readonly callSibling: CallPlugin;
  readonly plugin: string;
  readonly workplace: WorkerState | undefined;
  readonly kept: KeptAttachments | undefined;
}

/** The attachments that a request of GC lists, if it does. @throws CniError 7 for a list with anything else in it: that would not be kept */
export function validAttachmentsIn(request: JsonObject): readonly AttachmentKey[] | undefined {
  // libcni sent the second name by mistake before it adopted the specification's.
  const lists = [request[VALID_ATTACHMENTS], request['cni.dev/attachments']];
  const found = lists.find(Array.isArray);
  if (found) return decode(AttachmentKeys, found, `"${VALID_ATTACHMENTS}"`);
  // What Go makes of a list without entries, which CRI-O sends for a network without pods.
  return lists.includes(null) ? [] : undefined;
}

/** Verbs whose device removals may wait until the chain's last plugin was called: no plugin depends on them before that. */
const MAY_WAIT: readonly Command[] = ['DEL', 'GC'];

/** A {@link Call} on the real system: opens each resource once, when it is first used, and closes it at the end. */
export class LiveCall implements Call<never> {
  readonly env!: CniEnv;
  readonly environment!: Call['environment'];
  readonly network!: string;
  readonly version!: SpecVersion;
  readonly conf!: never;
  readonly request!: JsonObject;
  readonly requestText!: string;
  readonly prevResult: Result | undefined;
  readonly log!: Log;
  readonly #facts: KnownCall;
  readonly #undo: { what: string; undo: Undo }[] = [];
  readonly #sockets: HostSockets;
  #args?: CniArgs;
  #netns?: ContainerNetns | undefined;
  /** Whether the namespace may have become another attachment's. */
  #mayBeOthers = false;
  /** The path refers to a namespace that must not be touched: DEL treats it as gone. */
  #isGone = false;
  /** No other attachment's interface was in the namespace. Not kept for the next plugin of the chain: one may be there by then. */
  #isCleared = false;
  #waits = false;

  constructor(facts: KnownCall) {
    const { env, environment, network, version, conf, request, requestText, prevResult, log } = facts;
    Object.assign(this, { env, environment, network, version, conf, request, requestText, prevResult, log });
    this.#facts = facts;
    this.#sockets = facts.workplace?.sockets ?? new HostSockets();
  }

  get args(): CniArgs {
    this.#args ??= parseCniArgs(this.env.args);
    return this.#args;
  }

  get validAttachments(): readonly AttachmentKey[] | undefined {
    return validAttachmentsIn(this.request);
  }

  get kept(): KeptAttachments | undefined {
    return this.#facts.kept;
  }

  get host(): NetlinkSocket {
    return this.#sockets.route;
  }

  get hostNft(): NetlinkSocket {
    return this.#sockets.netfilter;
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

  onFailure(what: string, undo: Undo): void {
    this.#undo.push({ what, undo });
  }

  async removeDevices(links: readonly Link[], then: () => Done = () => {}): Promise<void> {
    const { plugin: by, workplace } = this.#facts;
    if (workplace && MAY_WAIT.includes(this.env.command)) {
      this.#waits = true;
      return workplace.removals.add({ devices: links, then, by, close: () => this.#release() });
    }
    if (links.length === 0) return then();
    // Most plugins have no device to delete.
    const { Removals } = await import('./delete-devices.ts');
    const own = new Removals();
    own.add({ devices: links, then, by: '', close() {} });
    await own.perform(() => this.host);
  }

  async onceDeleted(then: () => Done): Promise<void> {
    const { plugin: by, workplace } = this.#facts;
    // To undo an ADD, a delegate is called with DEL, and waits as well.
    const mayWait = MAY_WAIT.includes(this.env.command) || workplace?.removals.waiting;
    if (!workplace || !mayWait) return then();
    this.#waits = true;
    workplace.removals.add({ devices: [], then, by, close: () => this.#release(), isLast: true });
  }

  delegate(type: string, request: JsonObject = this.request): Delegate {
    const { env, version, callSibling } = this.#facts;
    const environment = this.#isGone ? { ...this.environment, CNI_NETNS: '' } : this.environment;
    return findDelegate(type, { env, environment, request, version, callSibling });
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
      const code = isShortage(cause) ? ErrorCode.tryAgainLater : ErrorCode.invalidNetns;
      throw new CniError(code, (cause as Error).message, { cause });
    }
    return this.#netns;
  }

  /** Like {@link #openNetns}, but undefined when there is no namespace at the path. */
  #findNetns(): ContainerNetns | undefined {
    if (this.env.netns === '') return undefined;
    try {
      return this.#openNetns();
    } catch (error) {
      // A DEL that takes it for gone would leave undone what is to be done in it.
      if (error instanceof CniError && error.code === ErrorCode.tryAgainLater) throw error;
      return undefined;
    }
  }

  /** Undoes the steps of a failed ADD, last first. @returns what could not be undone */
  async undo(): Promise<Error[]> {
    const problems: Error[] = [];
    for (const { what, undo } of this.#undo.reverse()) {
      try {
        await undo(problems);
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
    if (this.#facts.workplace === undefined) this.#sockets.close();
    this.#netns?.release();
    this.#netns = undefined;
  }
}
