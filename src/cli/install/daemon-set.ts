// Which objects make Kubernetes install Catena on every node and keep its daemon running there?
import { kubeconfigIn } from './kubeconfig.ts';
import type { PrintOptions } from './print-options.ts';
import networkDefinition from './texts/network-definition.yaml.txt' with { type: 'text' };

/** Where the installing container sees the service account. */
const ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Where the host sees it: the kubelet's directory with the volumes of this pod. */
const ACCOUNT_ON_HOST = '/var/lib/kubelet/pods/$(POD_UID)/volumes/kubernetes.io~projected/account';

/** Port of the metrics: the one that OpenTelemetry's exporters use. */
const METRICS_PORT = 9464;

/**
 * What the daemon needs instead of a privileged container, and why (capabilities(7)); plugins that it starts have no more.
 * test/e2e/daemon-capabilities.test.ts runs a daemon with exactly these.
 */
export const DAEMON_CAPABILITIES: Readonly<Record<string, string>> = {
  NET_ADMIN: 'devices, addresses, routes, nf_tables, traffic control',
  NET_BIND_SERVICE: 'the port of DHCP clients',
  NET_RAW: 'packets of dhcp and of the probes for addresses, iptables of the legacy kind',
  SYS_ADMIN: 'setns(2) to the namespaces of pods and, for nsenter, to the mounts of the host',
  SYS_CHROOT: 'nsenter: setns(2) to the mounts of the host',
  SYS_PTRACE: 'namespaces under /proc/<pid>/ns, of pods and of process 1',
};

/** The manifest, as YAML. */
export function daemonSet(options: PrintOptions): string {
  const { binDir, confDir, version, withAccount, list } = options;
  // Network Custom Resource Definition De-facto Standard, version 1.3, section 3: its projects each bring the same kind.
  const config = `${options.withDefinitions ? networkDefinition : ''}${list ? configMap(list) : ''}${withAccount ? account(options) : ''}`;
  return `# Installs Catena on every node and runs its daemon there. Build the image with catena install --print containerfile.
${config}apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: catena
  namespace: kube-system
  labels: { app.kubernetes.io/name: catena, app.kubernetes.io/version: "${version}" }
spec:
  selector:
    matchLabels: { app.kubernetes.io/name: catena }
  # Without its daemon a node still attaches pods, only slower. A daemon that ends again at once stops the update.
  minReadySeconds: 10
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: { maxUnavailable: 10% }
  template:
    metadata:
      labels: { app.kubernetes.io/name: catena }
${annotations(options)}    spec:
${withAccount ? '      serviceAccountName: catena\n' : ''}      automountServiceAccountToken: false
      hostNetwork: true
      hostPID: true
      nodeSelector: { kubernetes.io/os: linux }
      priorityClassName: system-node-critical
      # SIGTERM reaches the daemon itself, since nsenter executes it: it takes no more requests and finishes those that it has. A
      # preStop hook would be killed with the container in which it waits for that.
      terminationGracePeriodSeconds: 90
      tolerations:
        - operator: Exists
      initContainers:
${installContainers(options)}      containers:
${daemonContainer(options)}      volumes:
        - name: cni-bin
          hostPath: { path: ${binDir}, type: DirectoryOrCreate }
        - name: cni-conf
          hostPath: { path: ${confDir}, type: DirectoryOrCreate }
${list ? '        - name: network\n          configMap: { name: catena }\n' : ''}${withAccount ? ACCOUNT_VOLUME : ''}`;
}

/** What puts executables and lists on the node, and then what replaces those of others if that is wanted. */
function installContainers(options: PrintOptions): string {
  const { binDir, confDir, image, asDefault, withAccount, list } = options;
  const installArgs = [
    ...['install', ...(list ? ['/etc/catena/network.conflist'] : [])],
    ...['--bin-dir', `/host${binDir}`, '--conf-dir', `/host${confDir}`],
    ...(options.confName ? ['--conf-name', options.confName] : []),
    ...(asDefault ? ['--as-default'] : []),
    ...(withAccount ? ['--account', ACCOUNT_DIR, '--account-on-host', ACCOUNT_ON_HOST] : []),
  ];
  const replaceArgs = ['install', '--bin-dir', `/host${binDir}`, '--force', '--keep-daemon'];
  for (const name of options.replaced ?? []) replaceArgs.push('--link', name);
  const replacing = `        - name: replace
          image: ${image}
          args: ${JSON.stringify(replaceArgs)}
${INSTALLER}          volumeMounts:
            - { name: cni-bin, mountPath: /host${binDir} }
`;
  return `        # Files are installed by rename: pods that start during an update use either the old or the new files.
        - name: install
          image: ${image}
          args: ${JSON.stringify(installArgs)}
${withAccount ? ACCOUNT_ENV : ''}${INSTALLER}          volumeMounts:
            - { name: cni-bin, mountPath: /host${binDir} }
            - { name: cni-conf, mountPath: /host${confDir} }
${list ? '            - { name: network, mountPath: /etc/catena, readOnly: true }\n' : ''}${withAccount ? ACCOUNT_MOUNT : ''}${options.replaced ? replacing : ''}`;
}

function daemonContainer({ binDir, image, withMetrics, kubernetes }: PrintOptions): string {
  const onHost = ['nsenter', '--target=1', '--mount', '--', `${binDir}/catena`];
  const daemon = [...onHost, 'daemon', ...(withMetrics ? ['--metrics', `$(POD_IP):${METRICS_PORT}`] : [])];
  const ping = `{ exec: { command: ${JSON.stringify([...onHost, 'daemon', '--ping', '--deadline=4'])} }, timeoutSeconds: 5`;
  return `        - name: daemon
          image: ${image}
          # The host's own executable, in the host's mount namespace: elsewhere the daemon would see other paths than the
          # calling runtime and would decline all its calls.
          command: ${JSON.stringify(daemon)}
          env:
            - { name: CNI_PATH, value: ${JSON.stringify(binDir)} }
            - { name: CATENA_NODE_NAME, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
${withMetrics ? METRICS_PORTS : ''}          # ping fails if no daemon answers, or if it is another build than the executables that are installed. Then it serves nothing,
          # and a new one would.
          startupProbe: ${ping}, periodSeconds: 2, failureThreshold: 30 }
          readinessProbe: ${ping}, periodSeconds: 10, failureThreshold: 1 }
          livenessProbe: ${ping}, periodSeconds: 20, failureThreshold: 3 }
          # A call leaves the runtime's share of the processors and gets the daemon's, so that this is the weight of all calls while pods
          # start: a quarter of a core, about what calls are of the work on a pod. With 100m they wait for the runtime.
          # No limit of CPU time: clients of a throttled daemon would wait.
          resources:
            requests: { cpu: 250m, memory: 192Mi }
            limits: { memory: 1Gi }
          # Not privileged. A third-party plugin in the list may need more: add that here.
          securityContext:
            runAsUser: 0
            capabilities:
              drop: [ALL]
              add:
${capabilities()}
            # What runtimes confine by default would forbid to enter namespaces and to write sysctls.
            seLinuxOptions: { type: spc_t, level: s0 }
${kubernetes < APP_ARMOR_FIELD ? '' : '            appArmorProfile: { type: Unconfined }\n'}            seccompProfile: { type: Unconfined }
`;
}

const INSTALLER = `          resources: { requests: { cpu: 10m, memory: 64Mi } }
          # The directories are root's. SELinux lets only this type write to them.
          securityContext:
            runAsUser: 0
            allowPrivilegeEscalation: false
            capabilities: { drop: [ALL] }
            seLinuxOptions: { type: spc_t, level: s0 }
`;

function capabilities(): string {
  const lines = Object.entries(DAEMON_CAPABILITIES).map(
    ([name, why]) => `                - ${name} # ${why}`,
  );
  return lines.join('\n');
}

/** The minor release since which a container's AppArmor profile is a field: kubectl refuses a manifest with an unknown one. */
const APP_ARMOR_FIELD = 30;

function annotations({ withMetrics, kubernetes }: PrintOptions): string {
  const all = [
    ...(withMetrics ? ['prometheus.io/scrape: "true"', `prometheus.io/port: "${METRICS_PORT}"`] : []),
    ...(kubernetes < APP_ARMOR_FIELD
      ? ['container.apparmor.security.beta.kubernetes.io/daemon: unconfined']
      : []),
  ];
  return all.length ? `      annotations: { ${all.join(', ')} }\n` : '';
}

const METRICS_PORTS = `            - { name: POD_IP, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
          ports:
            - { name: metrics, containerPort: ${METRICS_PORT}, hostPort: ${METRICS_PORT}, protocol: TCP }
`;

/** The name is for the calls of the runtime, whose environment is not a container's. */
const ACCOUNT_ENV = `          env:
            - { name: POD_UID, valueFrom: { fieldRef: { fieldPath: metadata.uid } } }
            - { name: CATENA_NODE_NAME, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
`;

/** The kubelet creates a volume on the host only if a container of the pod mounts it. */
const ACCOUNT_MOUNT = `            - { name: account, mountPath: ${ACCOUNT_DIR}, readOnly: true }\n`;

const ACCOUNT_VOLUME = `        - name: account
          projected:
            defaultMode: 256
            sources:
              - serviceAccountToken: { path: token, expirationSeconds: 3607 }
              - configMap: { name: kube-root-ca.crt, items: [{ key: ca.crt, path: ca.crt }] }
`;

/** The list that an account is for needs these: networks of the delegate runner may use any plugin, and those of an unknown list, too. */
const RIGHTS: readonly (readonly [types: RegExp, rules: string])[] = [
  [
    /^(catena|multus)$/,
    `  - { apiGroups: [""], resources: [pods], verbs: [get, list, watch] }
  - { apiGroups: [""], resources: [pods/status], verbs: [patch] }
  - { apiGroups: [""], resources: [events], verbs: [create] }
  - { apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get, list, watch] }
  - { apiGroups: [k8s.cni.cncf.io], resources: [ipamclaims/status], verbs: [patch] }
  # Devices of dynamic resource allocation.
  - { apiGroups: [resource.k8s.io], resources: [resourceclaims], verbs: [get] }
  - { apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list] }
`,
  ],
  // Routes to other nodes are a setting of the daemon.
  [/^/, `  - { apiGroups: [""], resources: [nodes], verbs: [get, list, watch] }\n`],
  [
    /^cluster$/,
    `  # Cluster-wide addresses: nodes claim blocks, give them back, and collect those of nodes that are gone.
  - { apiGroups: [k8s.cni.cncf.io], resources: [ipamclaims], verbs: [get] }
  - { apiGroups: [catena.cni.cncf.io], resources: [pools], verbs: [get, list, watch, create, update] }
  - { apiGroups: [catena.cni.cncf.io], resources: [blocks, addresses], verbs: [get, list, watch, create, update, delete] }
`,
  ],
  [
    /^whereabouts$/,
    `  # The objects of whereabouts.
  - { apiGroups: [whereabouts.cni.cncf.io], resources: [ippools], verbs: [get, list, create, patch] }
  - { apiGroups: [whereabouts.cni.cncf.io], resources: [overlappingrangeipreservations], verbs: [get, create, delete] }
  - { apiGroups: [whereabouts.cni.cncf.io], resources: [nodeslicepools], verbs: [get] }
`,
  ],
];

function rightsFor({ text = '{ "type": "catena" }' }: { text?: string } = {}): string {
  const types = Array.from(text.matchAll(/"type"\s*:\s*"([^"]*)"/gi), ([, type = '']) => type);
  const isOpen = types.some(type => RIGHTS[0]?.[0].test(type));
  return RIGHTS.flatMap(([of, rules]) => (isOpen || types.some(type => of.test(type)) ? rules : [])).join('');
}

/** The runner's account, with exactly the permissions that the list needs. */
function account({ confDir, list }: PrintOptions): string {
  const named = 'metadata: { name: catena, namespace: kube-system }';
  return `# The runner uses this service account for the API when its entry in the list has "kubeconfig": "${kubeconfigIn(confDir)}".
apiVersion: v1
kind: ServiceAccount
${named}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: { name: catena }
rules:
${rightsFor(list)}---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: { name: catena }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: catena }
subjects:
  - { kind: ServiceAccount, name: catena, namespace: kube-system }
---
`;
}

function configMap({ text }: { text: string }): string {
  // The first line of a block says how far all are indented.
  const lines = text.trim().split('\n');
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
