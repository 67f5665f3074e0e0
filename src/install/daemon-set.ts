// Which objects make Kubernetes install Catena on every node and keep its daemon running there?
import { kubeconfigIn } from './kubeconfig.ts';
import type { PrintOptions } from './print-options.ts';

/** Where the installing container sees the service account. */
const ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Where the host sees it: the kubelet's directory with the volumes of this pod. */
const ACCOUNT_ON_HOST = '/var/lib/kubelet/pods/$(POD_UID)/volumes/kubernetes.io~projected/account';

/** The manifest, as YAML. */
export function daemonSet({ binDir, confDir, version, asDefault, withAccount, list }: PrintOptions): string {
  const config = `${list ? configMap(list) : ''}${withAccount ? account(confDir) : ''}`;
  const installArgs = [
    ...['install', ...(list ? ['/etc/catena/network.conflist'] : [])],
    ...['--bin-dir', `/host${binDir}`, '--conf-dir', `/host${confDir}`],
    ...(asDefault ? ['--as-default'] : []),
    ...(withAccount ? ['--account', ACCOUNT_DIR, '--account-on-host', ACCOUNT_ON_HOST] : []),
  ];
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
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: { maxUnavailable: 10% }
  template:
    metadata:
      labels: { app.kubernetes.io/name: catena }
    spec:
${withAccount ? '      serviceAccountName: catena\n' : ''}      automountServiceAccountToken: false
      hostNetwork: true
      hostPID: true
      priorityClassName: system-node-critical
      terminationGracePeriodSeconds: 90
      tolerations:
        - operator: Exists
      initContainers:
        # Files are installed by rename: pods that start during an update use either the old or the new files.
        - name: install
          image: localhost/catena:${version}
          args: ${JSON.stringify(installArgs)}
${withAccount ? '          env:\n            - { name: POD_UID, valueFrom: { fieldRef: { fieldPath: metadata.uid } } }\n' : ''}          resources: { requests: { cpu: 10m, memory: 64Mi } }
          securityContext: { runAsUser: 0 }
          volumeMounts:
            - { name: cni-bin, mountPath: /host${binDir} }
            - { name: cni-conf, mountPath: /host${confDir} }
${list ? '            - { name: network, mountPath: /etc/catena, readOnly: true }\n' : ''}${withAccount ? ACCOUNT_MOUNT : ''}      containers:
        - name: daemon
          image: localhost/catena:${version}
          # The host's own executable, in the host's mount namespace: elsewhere the daemon would see other paths than the
          # calling runtime and would decline all its calls.
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
${list ? '        - name: network\n          configMap: { name: catena }\n' : ''}${withAccount ? ACCOUNT_VOLUME : ''}`;
}

/** The kubelet creates a volume on the host only if a container of the pod mounts it. */
const ACCOUNT_MOUNT = `            - { name: account, mountPath: ${ACCOUNT_DIR}, readOnly: true }\n`;

const ACCOUNT_VOLUME = `        - name: account
          projected:
            defaultMode: 256
            sources:
              - serviceAccountToken: { path: token, expirationSeconds: 3607 }
              - configMap: { name: kube-root-ca.crt, items: [{ key: ca.crt, path: ca.crt }] }
`;

/** The runner's account, with exactly the permissions that the runner uses. */
function account(confDir: string): string {
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
  - { apiGroups: [""], resources: [pods], verbs: [get, list, watch] }
  - { apiGroups: [""], resources: [pods/status], verbs: [patch] }
  - { apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get, list, watch] }
  - { apiGroups: [k8s.cni.cncf.io], resources: [ipamclaims], verbs: [get] }
  - { apiGroups: [k8s.cni.cncf.io], resources: [ipamclaims/status], verbs: [patch] }
---
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
