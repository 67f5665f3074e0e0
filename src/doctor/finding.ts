// What does an examination of a node report?
import type { AnswerOf } from '../answers/kinds.ts';
import type { FindAbout } from '../cni/network-plugins.ts';
import type { Rule as PolicyRule } from '../netlink/rtnl/rule.ts';
import type { FilterTable } from '../netlink/tables.ts';
import type { HostRoute } from '../node/devices.ts';
import type { NodeFacts } from '../node/facts.ts';
import type { NodeDevice } from '../node/model.ts';
import type { InstalledRuntime } from '../runtimes/libcni.ts';
import type { BetweenView } from './between-view.ts';
import type { DaemonView } from './daemon-view.ts';
import type { RoutedPod } from './routed-pod.ts';
import type { NodeUser } from './user.ts';

/**
 * In the order of the report. `error`: containers cannot be attached, or something is lost. `warning`: it will cause trouble one day.
 * `unexamined`: it could not be seen, so it may be an error. `info`: good to know.
 */
export const SEVERITIES = ['error', 'warning', 'unexamined', 'info', 'ok'] as const;

/** One of {@link SEVERITIES}. */
export type Severity = (typeof SEVERITIES)[number];

/** What one check found. */
export type Finding = AnswerOf<'Diagnosis'>['findings'][number];

/** One check, which returns at least one finding. */
export interface Check {
  readonly id: string;
  run(node: NodeView): readonly Finding[];
}

/** What checks examine. */
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
  readonly routes: readonly HostRoute[];
  readonly devices: readonly (Pick<NodeDevice, 'name' | 'kind' | 'mtu'> & Partial<NodeDevice>)[];
  /** Rules that choose a routing table, or drop. */
  readonly policyRules?: () => readonly PolicyRule[];
  /** The daemon of the run directory; undefined if it was not examined. */
  readonly daemon?: DaemonView;
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
  readonly between?: () => BetweenView | undefined;
}

/** The only finding of a check that found nothing wrong. */
export function fine(id: string, found: string): Finding[] {
  return [{ id, severity: 'ok', found }];
}
