// Which programs is a cluster made of, and where are they?

import fs from 'node:fs';
import path from 'node:path';
import { TEST_PATH } from '../helpers/command.ts';
import { unpackedAt } from '../helpers/unpack.ts';

/** Those that are built of the sources of Debian, in the order in which they are. */
export const KUBERNETES = [
  'kube-apiserver',
  'kubectl',
  'kubelet',
  'kube-controller-manager',
  'kube-scheduler',
  'kube-proxy',
] as const;

/** Full paths by name. */
export type Programs = Readonly<Record<(typeof KUBERNETES)[number] | 'etcd', string>>;

/** Where the build puts them. */
export const BUILT = unpackedAt('catena-kubernetes');
/** Where etcd is unpacked. */
export const ETCD = unpackedAt('catena-etcd');

/** The directory of the programs of Kubernetes: `KUBERNETES_BIN`, or the build's. */
export function kubernetesDir(): string {
  return path.resolve(process.env.KUBERNETES_BIN ?? BUILT);
}

/** Those of Kubernetes that are not in a directory. */
export function missingIn(dir: string): string[] {
  return KUBERNETES.filter(name => !fs.existsSync(`${dir}/${name}`));
}

/** All of them. @throws Error if one is missing */
export function findPrograms(): Programs {
  const dir = kubernetesDir();
  const missing = missingIn(dir);
  if (missing.length) throw new Error(`Cannot start a cluster: "${dir}" has no ${missing.join(', ')}`);
  const etcd = Bun.which('etcd', { PATH: `${ETCD}/usr/bin:${TEST_PATH}` });
  if (etcd === null) throw new Error('Cannot start a cluster: there is no "etcd" (Debian: etcd-server)');
  const found = KUBERNETES.map(name => [name, `${dir}/${name}`]);
  return { ...Object.fromEntries(found), etcd };
}
