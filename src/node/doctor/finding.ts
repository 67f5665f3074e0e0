// What does an examination of a node report?

import { accessSync, constants, lstatSync } from 'node:fs';
import type { Conflist } from '../../chain/config/conflist.ts';
import type { HeldAttachment } from '../../chain/run/runtime.ts';
import type { AnswerOf } from '../../cli/answers/kinds.ts';
import type { InstalledRuntime } from '../../cli/runtimes/libcni.ts';
import { shortId } from '../../cni/attachment.ts';
import type { CniError } from '../../cni/errors.ts';
import { defined, isObject } from '../../cni/json.ts';
import type { FindAbout, NetworkPlugins } from '../../cni/plugin-about.ts';
import type { AttachmentKey } from '../../cni/schemas.ts';
import { type ProcessPlace, STATE_PATH, socketPathOf } from '../../daemon/protocol.ts';
import { askDaemon, holderOf, ownPlace } from '../../daemon/who-listens.ts';
import { tryRead } from '../../files/read-file.ts';
import type { RefusingRoute } from '../../netlink/rtnl/route.ts';
import type { Rule as PolicyRule } from '../../netlink/rtnl/rule.ts';
import type { FilterTable } from '../../netlink/tables.ts';
import type { HostRoutes } from '../devices.ts';
import type { NodeFacts } from '../facts.ts';
import type { NodeDevice, NodePort } from '../model.ts';
import { some } from '../words.ts';

/** Whether the path may not be read, or not even looked for, by this user. A missing one is readable: there is nothing in it. */
export function isHidden(path: string): boolean {
  try {
    accessSync(path, constants.R_OK);
    return false;
  } catch (error) {
    return isDenied((error as Error).message);
  }
}

/** Whether an error, by its message, comes from missing rights. */
export function isDenied(message: string): boolean {
  return /\b(EACCES|EPERM)\b/.test(message);
}

export type DaemonView =
  | { readonly kind: 'none' }
  /** This user may not look for it, or not connect to it. */
  | { readonly kind: 'hidden'; readonly socket: string }
  /** The daemon has ended and left its socket. */
  | { readonly kind: 'gone'; readonly socket: string }
  /** The daemon does not answer in time. */
  | { readonly kind: 'silent'; readonly socket: string; readonly holder?: string | undefined }
  | {
      readonly kind: 'answers';
      readonly socket: string;
      readonly state: DaemonState;
      /** The place of this command, which is also that of other clients here. */
      readonly here: ProcessPlace;
    };

/** What a daemon reports about itself; an earlier build reports less. */
export type DaemonState = Partial<AnswerOf<'DaemonState'>>;

/** Examines the daemon of a run directory. */
export async function viewDaemon(runDir: string): Promise<DaemonView> {
  const socket = socketPathOf(runDir);
  if (isHidden(socket)) return { kind: 'hidden', socket };
  if (!isSocket(socket)) return { kind: 'none' };
  const response = await askDaemon(socket, STATE_PATH, 'GET');
  if (response === 'absent' || response === 'ending') return { kind: 'gone', socket };
  const state: unknown = response === 'silent' ? undefined : await response.json().catch(() => undefined);
  if (!isObject(state)) return { kind: 'silent', socket, holder: holderOf(socket) };
  return { kind: 'answers', socket, state, here: ownPlace() };
}

/** A symbolic link leads to a service manager's socket, and asking there would start a daemon. */
function isSocket(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isSocket() ?? false;
}

/**
 * In the order of the report. `error`: containers cannot be attached, or something is lost. `warning`: it will cause trouble one day.
 * `unexamined`: it could not be seen, so it may be an error. `info`: good to know.
 */
export const SEVERITIES = ['error', 'warning', 'unexamined', 'info', 'ok'] as const;

/** Routes to other nodes, planned and in the kernel. */
export interface BetweenView {
  /** Number of other nodes. */
  readonly nodes: number;
  readonly routes: number;
  /** What cannot be planned. */
  readonly problems: readonly string[];
  /** What is missing or too much in the kernel. */
  readonly differences: readonly string[];
}

export type Finding = AnswerOf<'Diagnosis'>['findings'][number];

/** What a check found wrong; {@link findProblems} adds which check it was. */
export type Problem = Omit<Finding, 'id'>;

/** What is wrong, or in a sentence that nothing is. */
export type Seen = readonly Problem[] | string;

export type Check = (node: NodeView) => Seen;

/** @param mend the command that mends it, or the sentence that says what only an operator or a runtime can do */
export function problem(severity: Finding['severity'], found: string, mend?: string): Problem {
  return { severity, found, ...defined({ mend }) };
}

/** @param what is hidden from this user */
export function unseen(what: string): Problem {
  return problem('unexamined', `${what}: this user may not look there`);
}

export interface NodeView {
  readonly facts: NodeFacts;
  /** What is known about the plugins that are part of this executable. */
  readonly findAbout: FindAbout;
  /** Names of our executables. */
  readonly ownNames: readonly string[];
  /** The user as which the node is examined; root by default. */
  readonly user?: NodeUser;
  /** Container runtimes of this node whose libcni is known. */
  readonly installedRuntimes?: readonly InstalledRuntime[];
  readonly confDir: string;
  readonly pluginDirs: readonly string[];
  readonly cacheDir: string;
  readonly stateDir: string;
  readonly runDir: string;
  /** Text of a file; undefined if it cannot be read. Paths are those of the host. */
  read(path: string): string | undefined;
  /** Names in a directory; empty if it cannot be read. */
  list(path: string): readonly string[];
  /** Why nothing can be written into a directory; undefined if it is writable or does not exist yet. */
  findStorageProblem(dir: string): string | undefined;
  /** Routes and devices of this namespace. */
  readonly routes: HostRoutes;
  readonly devices: readonly (Pick<NodeDevice, 'name' | 'kind' | 'mtu'> & Partial<NodeDevice>)[];
  /** What the node holds of attachments to a network, recorded or not; undefined where that is not looked for. */
  readonly held?: (list: NetworkPlugins, known: readonly AttachmentKey[]) => readonly HeldAttachment[];
  /** Rules that choose a routing table, or drop. */
  readonly policyRules?: () => readonly PolicyRule[];
  /** Routes that drop packets. */
  readonly refusals?: () => readonly RefusingRoute[];
  /** The daemon of the run directory; undefined if it was not examined. */
  readonly daemon?: DaemonView;
  /** What people call containers, by their ids. */
  readonly titles?: ReadonlyMap<string, string>;
  /** Containers that the node routes for; undefined if they could not be listed. */
  readonly pods?: readonly RoutedPod[];
  /**
   * The packet filter, as far as forwarded and bridged packets pass it.
   * @throws Error without the right to read it
   */
  readonly filter?: () => readonly FilterTable[];
  /**
   * Compares the routes to other nodes with those planned; undefined if there are none to keep.
   * @throws Error without the right to look
   */
  readonly between?: () => Promise<BetweenView | undefined>;
  /** Asks the plugins of a list, as runtimes do, whether they can attach a container now; undefined if they can. */
  readonly askStatus?: (list: Conflist) => Promise<CniError | undefined>;
}

/** Values by their key, in the order in which the keys appear. */
export function groupBy<T>(
  values: readonly T[],
  keyOf: (value: T) => string,
): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const value of values) {
    const key = keyOf(value);
    const group = groups.get(key);
    if (group) group.push(value);
    else groups.set(key, [value]);
  }
  return groups;
}

/** The findings in one line, and what the exit code says. */
export type DoctorVerdict = AnswerOf<'Diagnosis'>['verdict'];

/** Sums up what was found. @param mayBecomeRoot whether root would see more */
export function judge(findings: readonly Finding[], mayBecomeRoot: boolean): DoctorVerdict {
  const those = (severity: (typeof SEVERITIES)[number]) => findings.filter(one => one.severity === severity);
  const [errors, warnings] = [those('error'), those('warning')];
  const thingsToDo = new Set([...errors, ...warnings].map(({ mend, found }) => mend ?? found)).size;
  const unexamined = those('unexamined').length;
  const state = thingsToDo > 0 ? 'to do' : unexamined > 0 ? 'blind' : 'healthy';
  const kinds = [counted(errors.length, 'error'), counted(warnings.length, 'warning')].filter(
    text => text !== '',
  );
  const blind = `${counted(unexamined, 'thing')} could not be examined${mayBecomeRoot ? ': run as root' : ''}`;
  const parts = [
    ...(thingsToDo > 0 ? [`${counted(thingsToDo, 'thing')} to do (${kinds.join(', ')})`] : []),
    ...(state === 'blind' ? ['nothing wrong in what could be examined'] : []),
    ...(unexamined > 0 ? [blind] : []),
  ];
  return {
    state,
    thingsToDo,
    errors: errors.length,
    warnings: warnings.length,
    unexamined,
    notes: those('info').length,
    summary: parts.join('; ') || 'healthy',
  };
}

/** Exit codes: 0 healthy, or only warnings; 1 an error; 3 no error, but not everything could be examined. */
export function exitCodeOf({ errors, unexamined }: DoctorVerdict): number {
  if (errors > 0) return 1;
  return unexamined > 0 ? 3 : 0;
}

function counted(number: number, one: string): string {
  return number === 0 ? '' : `${number} ${one}${number === 1 ? '' : 's'}`;
}

/** The user of this process. */
export interface NodeUser {
  readonly id: number;
  /** The user id that files of all unmapped users appear to have, so that they cannot be told apart. */
  readonly unknown: number | undefined;
}

/** Root in the initial user namespace, which maps every user. */
export const ROOT: NodeUser = { id: 0, unknown: undefined };

/** The id map of the initial user namespace, which maps every user. */
const EVERYBODY = '0 0 4294967295';

/** The user of this process, according to the kernel. */
export function currentUser(read: (path: string) => string | undefined = tryRead): NodeUser {
  const id = process.geteuid?.() ?? 0;
  // user_namespaces(7): first id inside, first id outside, count.
  const map = (read('/proc/self/uid_map') ?? EVERYBODY).trim().split(/\s+/).join(' ');
  if (map === EVERYBODY) return { id, unknown: undefined };
  return { id, unknown: Number(read('/proc/sys/kernel/overflowuid') ?? 65_534) };
}

/** An address of a container that the node is a router for. */
export interface RoutedPod {
  readonly network: string;
  readonly containerId: string;
  readonly ifname: string;
  readonly family: 4 | 6;
  /** Without prefix length. */
  readonly address: string;
  /** The device of the host through which packets reach it: a bridge, or one end of a veth pair. */
  readonly device: string;
  /** The port of the bridge that leads to it, if the device is a bridge. */
  readonly port?: string;
  /** Of its interface, in bytes; undefined if that is not known. */
  readonly mtu?: number;
  readonly ports: readonly NodePort[];
}

/** Containers that are named where there are more. */
const MOST_NAMED = 3;

/** What people call a container. */
export function titleIn({ titles }: Pick<NodeView, 'titles'>, containerId: string): string {
  return titles?.get(containerId) ?? shortId(containerId);
}

/** `1 container (web) of network "podnet"`, `5 containers (web, two, db and 2 more) of networks "a", "b"`. */
export function namePods(
  pods: readonly Pick<RoutedPod, 'network' | 'containerId'>[],
  node: Pick<NodeView, 'titles'>,
): string {
  const names = [...new Set(pods.map(({ containerId }) => containerId))].map(id => titleIn(node, id));
  const networks = [...new Set(pods.map(({ network }) => `"${network}"`))];
  const count = `${names.length} container${names.length === 1 ? '' : 's'} (${some(names, MOST_NAMED)})`;
  return `${count} of network${networks.length === 1 ? '' : 's'} ${networks.join(', ')}`;
}
