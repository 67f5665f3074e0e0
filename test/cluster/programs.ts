// Which programs is a cluster made of, and where are they?

import fs from 'node:fs';
import path from 'node:path';
import { TEST_PATH } from '../helpers/command.ts';
import { unpackedAt } from '../helpers/unpack.ts';

/** Those that are built of the sources of Debian. */
export const KUBERNETES = [
  'kube-apiserver',
  'kubelet',
  'kube-controller-manager',
  'kube-scheduler',
  'kube-proxy',
] as const;

/** Full paths by name. */
export type Programs = Readonly<Record<(typeof KUBERNETES)[number] | keyof typeof PACKAGES, string>>;

/** Those that Debian has as programs, and the packages. */
export const PACKAGES = { etcd: 'etcd-server', kubectl: 'kubernetes-client' } as const;

/** Where the build puts them. */
export const BUILT = unpackedAt('catena-kubernetes');
/** Where {@link PACKAGES} are unpacked. */
export const UNPACKED = unpackedAt('catena-cluster');

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
  const built = KUBERNETES.map(name => [name, `${dir}/${name}`]);
  const unpacked = Object.entries(PACKAGES).map(([name, of]) => {
    const found = Bun.which(name, { PATH: `${UNPACKED}/usr/bin:${TEST_PATH}` });
    if (found === null) throw new Error(`Cannot start a cluster: there is no "${name}" (Debian: ${of})`);
    return [name, found];
  });
  return Object.fromEntries([...built, ...unpacked]);
}
