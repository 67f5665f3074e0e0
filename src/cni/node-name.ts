// Under which name does the cluster know this node?
//
// The runtime's calls have the runtime's environment, which does not say. So `catena install --account` writes the name into the
// kubeconfig, where every process of the host finds it.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DEFAULT_CONF_DIR } from './directories.ts';
import { attempt } from './errors.ts';

export const NODE_VARIABLE = 'CATENA_NODE_NAME';
/** The kubeconfig of an installation below the directory of lists. */
export const KUBECONFIG_BELOW = 'catena.d/kubeconfig';
/** A line of a kubeconfig, which is a comment to all others. */
const LINE = /^# Node: (\S+)$/m;

/** The line by which {@link nodeName} finds the name in a kubeconfig. */
export function renderNodeLine(name: string): string {
  return `# Node: ${name}\n`;
}

/**
 * The name of this node: of {@link NODE_VARIABLE}, else of the kubeconfig, else that of the installation's kubeconfig, else the host's
 * in lower case, as the kubelet makes it.
 */
export function nodeName(env: Readonly<Record<string, string | undefined>>, kubeconfig?: string): string {
  return nodeNameGiven(env, kubeconfig) ?? hostName();
}

/** As {@link nodeName}, without the host's. */
export function nodeNameGiven(
  env: Readonly<Record<string, string | undefined>>,
  kubeconfig?: string,
): string | undefined {
  return (
    env[NODE_VARIABLE] ||
    (kubeconfig ? nameIn(kubeconfig) : undefined) ||
    nameIn(join(DEFAULT_CONF_DIR, KUBECONFIG_BELOW))
  );
}

/** The host's name in lower case, as the kubelet makes it. Not by node:os, which takes as long to load as a lease to write. */
export function hostName(): string {
  return readFileSync('/proc/sys/kernel/hostname', 'utf8').trim().toLowerCase();
}

function nameIn(kubeconfig: string): string | undefined {
  // Without one, the name is the host's, or the kubeconfig is reported by those who need it.
  return attempt(() => LINE.exec(readFileSync(kubeconfig, 'utf8'))?.[1]);
}
