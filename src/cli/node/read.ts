// How does a command read the model of this node?
import { runDir } from '../../cni/directories.ts';
import { loadAbouts } from '../../cni/network-plugins.ts';
import { viewDaemon } from '../../doctor/daemon-view.ts';
import type { NodeDaemon, NodeModel } from '../../node/model.ts';
import { readNode } from '../../node/read-node.ts';
import type { CommandCall } from '../command.ts';
import { confDirOf, runtimeOf, segmentsOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/**
 * Reads the directories of the command line.
 * @param health runs CHECK of every attachment
 * @throws CniError 5
 */
export async function readNodeFor(call: CommandCall, health = false): Promise<NodeModel> {
  return readNode({
    confDir: confDirOf(call),
    runtime: runtimeOf(call),
    findAbout: await loadAbouts(call.plugins.find, call.plugins.types),
    daemon: await daemonOf(call),
    version: TOOL_VERSION,
    health,
    openSegments: () => segmentsOf(call),
  });
}

async function daemonOf(call: CommandCall): Promise<NodeDaemon> {
  const view = await viewDaemon(runDir(call.env));
  if (view.kind === 'hidden') return { state: 'none' };
  if (view.kind !== 'answers') return { state: view.kind };
  const { version, pid } = view.state;
  return {
    state: view.kind,
    ...(version === undefined ? {} : { version }),
    ...(pid === undefined ? {} : { pid }),
  };
}
