// How does docker run on a node, for a kubelet that still has its own shim for it? Its package is only unpacked.

import { RUNTIME_ENV } from '../helpers/runtimes.ts';
import { libraryDirs, unpackedAt, unpackPackages } from '../helpers/unpack.ts';
import { POD_IMAGE } from './images.ts';

const UNPACKED = unpackedAt('catena-docker');
const SOCKET = 'unix:///run/docker.sock';

/** Unpacks it unless an earlier run did. @returns why it cannot be had, or undefined */
export function unpackDocker(): Promise<string | undefined> {
  return unpackPackages(UNPACKED, ['docker.io']);
}

/** A command line of its programs, which find each other, and containerd and runc. */
function withDocker(...argv: string[]): string[] {
  const { PATH, LD_LIBRARY_PATH } = RUNTIME_ENV;
  const libraries = [LD_LIBRARY_PATH, ...libraryDirs(UNPACKED)].join(':');
  const programs = `${UNPACKED}/usr/bin:${UNPACKED}/usr/sbin:${PATH}`;
  return ['env', `PATH=${programs}`, `LD_LIBRARY_PATH=${libraries}`, `DOCKER_HOST=${SOCKET}`, ...argv];
}

/** In the node's /etc. */
export const RUNTIME = '/etc/runc-of-docker';

/**
 * runc, without what needs CAP_SYS_RESOURCE, which this machine's root may lack: kubelet wants sandboxes to be the last that the kernel
 * ends. containerd has a setting for that (`restrict_oom_score_adj`).
 */
export const RUNTIME_SCRIPT = `#!/bin/sh
for word; do
  if [ "$last" = --bundle ]; then sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$word/config.json"; fi
  last=$word
done
exec ${UNPACKED}/usr/sbin/runc "$@"
`;

/** Networks are the plugins' business; files are copied, as a node's directories may be on any file system. */
export const DOCKERD = withDocker(
  ...['dockerd', `--host=${SOCKET}`, '--storage-driver=vfs', '--exec-opt=native.cgroupdriver=cgroupfs'],
  ...[`--add-runtime=lenient=${RUNTIME}`, '--default-runtime=lenient'],
  ...['--bridge=none', '--iptables=false', '--ip-masq=false', '--userland-proxy=false'],
);

/** Whether it answers. */
export const DOCKER_VERSION = withDocker('docker', 'version');

/** Reads an archive of an image. */
export function dockerLoad(archive: string): string[] {
  return withDocker('docker', 'load', '--input', archive);
}

/** Prints the process id of a container. */
export function dockerPid(id: string): string[] {
  return withDocker('docker', 'inspect', '--format={{.State.Pid}}', id);
}

/** How its kubelet reaches it, and the plugins. */
export const KUBELET_OPTIONS: readonly string[] = [
  ...[
    '--container-runtime=docker',
    `--docker-endpoint=${SOCKET}`,
    `--pod-infra-container-image=${POD_IMAGE}`,
  ],
  ...['--network-plugin=cni', '--cni-bin-dir=/opt/cni/bin', '--cni-conf-dir=/etc/cni/net.d'],
];
