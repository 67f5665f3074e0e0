// How does a command read the model of this node?

import type { AttachmentId } from '../../cni/attachment.ts';
import { cacheDirOf, runDir } from '../../cni/directories.ts';
import { attempt } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import { loadAbouts } from '../../cni/plugin-about.ts';
import { type DaemonView, viewDaemon } from '../../node/doctor/finding.ts';
import { factsIn, type NodeFacts, readRecords } from '../../node/facts.ts';
import type { NodeDaemon, NodeModel } from '../../node/model.ts';
import { type ContainerNames, namesOf, readStorageNames } from '../../node/names.ts';
import { readNode } from '../../node/read-node.ts';
import { titleOf } from '../../node/words.ts';
import { type CommandCall, TOOL_VERSION } from '../command.ts';
import { confDirOf, runtimeOf, segmentsOf } from '../target.ts';

export function factsFor(call: CommandCall): NodeFacts {
  return factsIn(confDirOf(call), runtimeOf(call));
}

export function placesFor(call: CommandCall) {
  const runtime = runtimeOf(call);
  return {
    confDir: confDirOf(call),
    pluginDirs: runtime.pluginDirs,
    cacheDir: cacheDirOf(runtime),
    stateDir: runtime.stateDir ?? '',
    runDir: runDir(call.env),
  };
}

/** What the model shows, and what of it has been read already. */
interface ReadOptions {
  /** Runs CHECK of every attachment. */
  readonly health?: boolean;
  readonly facts?: NodeFacts;
  readonly daemon?: DaemonView;
}

/** @throws CniError 5 */
export async function readNodeFor(call: CommandCall, wanted: ReadOptions = {}): Promise<NodeModel> {
  const { health = false, facts = factsFor(call), daemon = await viewDaemon(runDir(call.env)) } = wanted;
  return readNode({
    facts,
    runtime: runtimeOf(call),
    findAbout: await loadAbouts(call.plugins.find, call.plugins.types),
    daemon: daemonOf(daemon),
    version: TOOL_VERSION,
    health,
    openSegments: () => segmentsOf(call),
  });
}

function daemonOf(view: DaemonView): NodeDaemon {
  if (view.kind === 'hidden') return { state: 'none' };
  if (view.kind !== 'answers') return { state: view.kind };
  const { version, pid } = view.state;
  return { state: view.kind, ...defined({ version, pid }) };
}

/** What people call attachments: `podnet web eth0`. The records are read now, so that what is deleted later has its name. */
export function readTitles(call: CommandCall, names = readNames(call)): (id: AttachmentId) => string {
  return ({ network, containerId, ifname }) =>
    `${network} ${titleOf({ containerId, ...names.get(containerId) })} ${ifname}`;
}

/** What people call the containers on record, by id; none if records cannot be listed, which names do not depend on. */
export function readNames(call: CommandCall): ReadonlyMap<string, ContainerNames> {
  const storage = readStorageNames();
  const { attachments = [] } = attempt(() => readRecords(runtimeOf(call))) ?? {};
  return new Map(attachments.map(one => [one.containerId, namesOf(one, storage)]));
}
