// Which files run Catena under systemd or Kubernetes, or build it into an image?

import { daemonSet } from './daemon-set.ts';
import type { PrintOptions } from './print-options.ts';

/** What can be printed. */
export const PRINTABLE = ['systemd', 'daemonset', 'containerfile'] as const;
export type Printable = (typeof PRINTABLE)[number];

/** The text of one of them. */
export function printFor(what: Printable, options: PrintOptions): string {
  return { systemd: systemdUnit, daemonset: daemonSet, containerfile: containerfile }[what](options);
}

function systemdUnit({ binDir }: PrintOptions): string {
  return `# /etc/systemd/system/catena.service: keeps plugins loaded. Runtimes also work without it, but more slowly.
[Unit]
Description=Catena, CNI chains
After=network-pre.target local-fs.target
Before=containerd.service crio.service kubelet.service podman.service

[Service]
Type=notify
ExecStart=${binDir}/catena daemon
Restart=always
RestartSec=1
# Another daemon has the socket: restarting this one would not help.
RestartPreventExitStatus=3
# A daemon that hangs is killed and restarted.
WatchdogSec=30
# Requests in progress are finished before the daemon's child processes end.
KillMode=mixed
TimeoutStopSec=90
# Locks and sockets survive a restart.
RuntimeDirectory=catena
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=restart
StateDirectory=catena
LimitNOFILE=65536
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
`;
}

function containerfile({ version, home }: PrintOptions): string {
  return `# podman build --tag localhost/catena:${version} --file Containerfile ${home}
FROM docker.io/library/debian:stable-slim
LABEL org.opencontainers.image.title="catena" org.opencontainers.image.version="${version}"
COPY catena catena-core /usr/local/bin/
ENTRYPOINT ["/usr/local/bin/catena"]
`;
}
