// How do programs of the host reach a cluster's API with the account of a pod?
//
// The host cannot see a pod's directories, but it can see its volumes: the kubelet keeps them in a directory of its own and
// renews their content. So no secret is copied: the kubeconfig contains the path of the token, and its users read the token
// there.
import { readFileSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import { KUBECONFIG_BELOW, NODE_VARIABLE, renderNodeLine } from '../../cni/node-name.ts';
import { ifThere } from '../../files/read-file.ts';
import { FILES, UNFINISHED } from './files.ts';

/** A service account, as mounted by the kubelet. */
interface PodAccount {
  /** Its directory as seen by this process, with `ca.crt` and `token`. */
  readonly dir: string;
  /** The same directory as seen by the host. */
  readonly onHost: string;
}

/** Subdirectory of the configuration directory for files that belong to conflists; runtimes do not read it. */
const BESIDE = 'catena.d';
/** First line, by which we recognise our own file. */
const MARK = '# Written by catena install';

export function kubeconfigIn(confDir: string): string {
  return join(confDir, KUBECONFIG_BELOW);
}

/**
 * The text of a kubeconfig for an account.
 * @param env environment of a container in a pod, with the address of the API server
 * @throws Error if this is not a pod, or the account does not exist
 */
export function renderKubeconfig(
  { dir, onHost }: PodAccount,
  env: Readonly<Record<string, string | undefined>>,
): string {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = env;
  if (!host || !port) {
    throw new Error(
      'Cannot write a kubeconfig: not in a pod: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set',
    );
  }
  const authority = readPart(dir, 'ca.crt');
  // A missing token is found here, and not only by the first pod.
  readPart(dir, 'token');
  const cluster = {
    server: `https://${isIPv6(host) ? `[${host}]` : host}:${port}`,
    'certificate-authority-data': authority.toString('base64'),
  };
  // The client library knows Kubernetes' "tokenFile" under this name only. It reads the file again every minute.
  const provider = { name: 'tokenFile', config: { tokenFile: join(onHost, 'token') } };
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'catena',
    clusters: [{ name: 'catena', cluster }],
    users: [{ name: 'catena', user: { 'auth-provider': provider } }],
    contexts: [{ name: 'catena', context: { cluster: 'catena', user: 'catena' } }],
  };
  // A container is told the name of its node; the host's programs find it here.
  const { [NODE_VARIABLE]: node } = env;
  return `${MARK}\n${node ? renderNodeLine(node) : ''}${JSON.stringify(config, null, 2)}\n`;
}

/** Whether the kubeconfig exists already, and whether it is ours. */
export function judgeKubeconfig(
  confDir: string,
  text: string | undefined,
): 'absent' | 'same' | 'ours' | 'foreign' {
  let there: string | undefined;
  try {
    there = ifThere(() => readFileSync(kubeconfigIn(confDir), 'utf8'));
  } catch {
    return 'foreign';
  }
  if (there === undefined) return 'absent';
  if (there === text) return 'same';
  return there.startsWith(`${MARK}\n`) ? 'ours' : 'foreign';
}

/** Installs it with mode 0600. */
export function layKubeconfig(confDir: string, text: string): void {
  const dir = join(confDir, BESIDE);
  FILES.makeDir(dir, 0o700);
  const unfinished = join(dir, `${UNFINISHED}kubeconfig`);
  FILES.remove(unfinished);
  FILES.write(unfinished, text, 0o600);
  FILES.rename(unfinished, kubeconfigIn(confDir));
  FILES.sync(dir);
}

/** Removes it, and its directory if that is empty. */
export function removeKubeconfig(confDir: string): void {
  const dir = join(confDir, BESIDE);
  FILES.remove(join(dir, `${UNFINISHED}kubeconfig`));
  FILES.remove(kubeconfigIn(confDir));
  FILES.removeDir(dir);
}

function readPart(dir: string, name: string): Buffer {
  const path = join(dir, name);
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new Error(`Cannot read service account "${path}": ${(cause as Error).message}`, { cause });
  }
}
