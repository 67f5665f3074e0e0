// How does a daemon learn of the cluster's other nodes, and keep the routes to them?
import { openFilesSource } from '../../between/files-source.ts';
import { type Keeping, startKeeping } from '../../between/keeper.ts';
import { type BetweenSettings, BLOCKS, KUBERNETES } from '../../between/settings.ts';
import { runDir } from '../../cni/directories.ts';
import { nodeName } from '../../cni/node-name.ts';
import { absolutePath } from '../../files/absolute-path.ts';
import type { Observer } from '../../observe/observer.ts';
import type { CommandCall } from '../command.ts';

/** A server that does not answer within this time counts as one that cannot be reached. */
const ANSWER_MS = 10_000;

/** Starts keeping with the directories of the command line. The packages for a cluster are loaded only if the settings name one. */
export function keepBetween(
  call: CommandCall,
  { log }: Pick<Observer, 'log'>,
  settings: BetweenSettings,
): Keeping {
  return startKeeping(
    {
      own: call.text('node-name') ?? nodeName(call.env, settings.kubeconfig),
      runDir: absolutePath(call.text('run-dir') ?? runDir(call.env), call.cwd),
      log,
      async openSource({ nodes = '', kubeconfig }, events) {
        if (nodes !== KUBERNETES && nodes !== BLOCKS) return openFilesSource(nodes, events);
        const { openKubernetesSource } = await import('../../between/kubernetes-source.ts');
        return openKubernetesSource({ kubeconfig, timeoutMs: ANSWER_MS }, events, { ranges: nodes });
      },
    },
    settings,
  );
}
