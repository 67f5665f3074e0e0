// How do programs of the host reach a cluster's API with the account of a pod?
//
// The host does not see a pod's directories, but it has its volumes: the kubelet keeps them in a directory of its own, and renews
// what is in them. So no secret is copied: the kubeconfig says where the token is, and whoever uses it reads it there.
import { readFileSync } from 'node:fs';
import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import type { Files } from './files.ts';
import { UNFINISHED } from './names.ts';

/** An account as the kubelet has mounted it. */
export interface PodAccount {
  /** Its directory as this process sees it, with `ca.crt` and `token`. */
  readonly dir: string;
  /** The same as the host sees it. */
  readonly onHost: string;
}

/** Directory of what belongs to the lists, in theirs: runtimes do not look into it. */
const BESIDE = 'catena.d';
/** First line, by which ours is known. */
const MARK = '# Written by catena install';

/** Where the kubeconfig is. */
export function kubeconfigIn(confDir: string): string {
  return join(confDir, BESIDE, 'kubeconfig');
}

/**
 * The text of a kubeconfig for an account.
 * @param env of a container in a pod, which says where the API server is
 * @throws Error when this is no pod, or the account is not there
 */
export function renderKubeconfig(
  { dir, onHost }: PodAccount,
  env: Readonly<Record<string, string | undefined>>,
): string {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = env;
  if (!host || !port) {
    throw new Error(
      'Cannot write a kubeconfig: this is no pod, KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set',
    );
  }
  const authority = readPart(dir, 'ca.crt');
  // Its absence is found here, and not by the first pod.
  readPart(dir, 'token');
  const cluster = {
    server: `https://${isIPv6(host) ? `[${host}]` : host}:${port}`,
    'certificate-authority-data': authority.toString('base64'),
  };
  // What Kubernetes calls "tokenFile" the client library knows under this name only; it reads the file again every minute.
  const provider = { name: 'tokenFile', config: { tokenFile: join(onHost, 'token') } };
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'catena',
    clusters: [{ name: 'catena', cluster }],
    users: [{ name: 'catena', user: { 'auth-provider': provider } }],
    contexts: [{ name: 'catena', context: { cluster: 'catena', user: 'catena' } }],
  };
  return `${MARK}\n${JSON.stringify(config, null, 2)}\n`;
}

/** What lies where the kubeconfig is to be: nothing, ours, or somebody else's. */
export function judgeKubeconfig(
  confDir: string,
  text: string | undefined,
): 'absent' | 'same' | 'ours' | 'foreign' {
  let there: string;
  try {
    there = readFileSync(kubeconfigIn(confDir), 'utf8');
  } catch (cause) {
    const { code = '' } = cause as NodeJS.ErrnoException;
    return ['ENOENT', 'ENOTDIR'].includes(code) ? 'absent' : 'foreign';
  }
  if (there === text) return 'same';
  return there.startsWith(`${MARK}\n`) ? 'ours' : 'foreign';
}

/** Puts it into place, for its owner only. */
export function layKubeconfig(confDir: string, text: string, files: Files): void {
  const dir = join(confDir, BESIDE);
  files.makeDir(dir, 0o700);
  const unfinished = join(dir, `${UNFINISHED}kubeconfig`);
  files.remove(unfinished);
  files.write(unfinished, text, 0o600);
  files.rename(unfinished, kubeconfigIn(confDir));
  files.sync(dir);
}

/** Removes it, and its directory when nothing else is there. */
export function removeKubeconfig(confDir: string, files: Files): void {
  const dir = join(confDir, BESIDE);
  files.remove(join(dir, `${UNFINISHED}kubeconfig`));
  files.remove(kubeconfigIn(confDir));
  files.removeDir(dir);
}

function readPart(dir: string, name: string): Buffer {
  const path = join(dir, name);
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new Error(`Cannot read account "${path}": ${(cause as Error).message}`, { cause });
  }
}
