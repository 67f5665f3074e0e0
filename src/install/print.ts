// Which files put Catena under the care of systemd or Kubernetes, or into an image?

/** What can be printed. */
export const PRINTABLE = ['systemd', 'daemonset', 'containerfile'] as const;
export type Printable = (typeof PRINTABLE)[number];

/** What the texts depend on. */
export interface PrintOptions {
  /** Directories of the host. */
  readonly binDir: string;
  readonly confDir: string;
  readonly version: string;
  readonly asDefault: boolean;
  /** The list to install, if there is one. */
  readonly list?: { readonly name: string; readonly text: string };
  /** Directory of this executable, which an image is built from. */
  readonly home: string;
}

/** The text of one of them. */
export function printFor(what: Printable, options: PrintOptions): string {
  return { systemd: systemdUnit, daemonset: daemonSet, containerfile: containerfile }[what](options);
}

function systemdUnit({ binDir }: PrintOptions): string {
  return `# /etc/systemd/system/catena.service: links that are warm. Runtimes work without it, only slower.
[Unit]
Description=Catena, CNI chains
After=network-pre.target local-fs.target
Before=containerd.service crio.service kubelet.service podman.service

[Service]
Type=notify
ExecStart=${binDir}/catena daemon
Restart=always
RestartSec=1
# A request that is under way is finished; what the daemon started goes with it only then.
KillMode=mixed
TimeoutStopSec=90
# Locks and sockets outlive a restart.
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

function daemonSet({ binDir, confDir, version, asDefault, list }: PrintOptions): string {
  const config = list ? configMap(list) : '';
  const installArgs = [
    ...['install', ...(list ? ['/etc/catena/network.conflist'] : [])],
    ...['--bin-dir', `/host${binDir}`, '--conf-dir', `/host${confDir}`],
    ...(asDefault ? ['--as-default'] : []),
  ];
  return `# Installs Catena on every node, and keeps its daemon there. Build the image with catena install --print containerfile.
${config}apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: catena
  namespace: kube-system
  labels: { app.kubernetes.io/name: catena, app.kubernetes.io/version: "${version}" }
spec:
  selector:
    matchLabels: { app.kubernetes.io/name: catena }
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: { maxUnavailable: 10% }
  template:
    metadata:
      labels: { app.kubernetes.io/name: catena }
    spec:
      hostNetwork: true
      hostPID: true
      priorityClassName: system-node-critical
      terminationGracePeriodSeconds: 90
      tolerations:
        - operator: Exists
      initContainers:
        # Files are laid down by rename: pods that start meanwhile meet the old ones or the new ones.
        - name: install
          image: localhost/catena:${version}
          args: ${JSON.stringify(installArgs)}
          resources: { requests: { cpu: 10m, memory: 64Mi } }
          securityContext: { runAsUser: 0 }
          volumeMounts:
            - { name: cni-bin, mountPath: /host${binDir} }
            - { name: cni-conf, mountPath: /host${confDir} }
${list ? '            - { name: network, mountPath: /etc/catena, readOnly: true }\n' : ''}      containers:
        - name: daemon
          image: localhost/catena:${version}
          # The host's own executable, among the host's mounts: a daemon elsewhere would see other paths than the runtime
          # that calls, and none of its calls would be handed over.
          command: ["nsenter", "--target=1", "--mount", "--", ${JSON.stringify(`${binDir}/catena`)}, "daemon"]
          env:
            - { name: CNI_PATH, value: ${JSON.stringify(binDir)} }
            - { name: CATENA_NODE_NAME, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
          resources:
            requests: { cpu: 100m, memory: 128Mi }
            limits: { memory: 512Mi }
          securityContext: { privileged: true }
      volumes:
        - name: cni-bin
          hostPath: { path: ${binDir}, type: DirectoryOrCreate }
        - name: cni-conf
          hostPath: { path: ${confDir}, type: DirectoryOrCreate }
${list ? '        - name: network\n          configMap: { name: catena }\n' : ''}`;
}

function configMap({ text }: { text: string }): string {
  const lines = text.trimEnd().split('\n');
  return `apiVersion: v1
kind: ConfigMap
metadata:
  name: catena
  namespace: kube-system
data:
  network.conflist: |
${lines.map(line => `    ${line}`).join('\n')}
---
`;
}

function containerfile({ version, home }: PrintOptions): string {
  return `# podman build --tag localhost/catena:${version} --file Containerfile ${home}
FROM docker.io/library/debian:stable-slim
LABEL org.opencontainers.image.title="catena" org.opencontainers.image.version="${version}"
COPY catena /usr/local/bin/catena
ENTRYPOINT ["/usr/local/bin/catena"]
`;
}
