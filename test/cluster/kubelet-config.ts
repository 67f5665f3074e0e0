// With which configuration do kubelet, containerd and kube-proxy run on a node that is a few namespaces?

import { PODS } from './addresses.ts';
import { POD_IMAGE } from './images.ts';

/**
 * Kernel settings that kubelet wants to see. They are the machine's, for all, so a node sees files in their place.
 * `protectKernelDefaults` has kubelet compare and not write.
 */
export const KERNEL_SETTINGS: Readonly<Record<string, string>> = {
  '/proc/sys/vm/overcommit_memory': '1\n',
  '/proc/sys/vm/panic_on_oom': '0\n',
  '/proc/sys/kernel/panic': '10\n',
  '/proc/sys/kernel/panic_on_oops': '1\n',
  '/proc/sys/kernel/keys/root_maxkeys': '1000000\n',
  '/proc/sys/kernel/keys/root_maxbytes': '25000000\n',
};

export const CONTAINERD_SOCKET = '/run/containerd/containerd.sock';

/** What kubelet's configuration needs to know. */
export interface KubeletPlace {
  readonly address: string;
  /** The node's cgroup, in which that of all pods is. */
  readonly cgroup: string;
  readonly authority: string;
  readonly certificate: string;
  readonly key: string;
}

/** kubelet's configuration file, as JSON. */
export function kubeletConfig({ address, cgroup, authority, certificate, key }: KubeletPlace): string {
  return JSON.stringify({
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    kind: 'KubeletConfiguration',
    address,
    authentication: {
      x509: { clientCAFile: authority },
      webhook: { enabled: true },
      anonymous: { enabled: false },
    },
    authorization: { mode: 'Webhook' },
    tlsCertFile: certificate,
    tlsPrivateKeyFile: key,
    // Nodes share one hierarchy of cgroups: groups.ts. Their processors and memory are the machine's.
    cgroupDriver: 'cgroupfs',
    enforceNodeAllocatable: [],
    cgroupRoot: `/${cgroup}`,
    protectKernelDefaults: true,
    failSwapOn: false,
    // The disk is the machine's, and full of other things.
    evictionHard: {
      'memory.available': '0%',
      'nodefs.available': '0%',
      'nodefs.inodesFree': '0%',
      'imagefs.available': '0%',
    },
    imageGCHighThresholdPercent: 100,
    imageGCLowThresholdPercent: 99,
    maxPods: 130,
    // As by default since 1.27: with five requests a second, 30 pods take a minute to go.
    kubeAPIQPS: 50,
    kubeAPIBurst: 100,
    volumePluginDir: '/var/lib/kubelet/plugins-of-volumes',
    nodeStatusUpdateFrequency: '4s',
    resolvConf: '/etc/resolv.conf',
  });
}

/** containerd's, as its manual has it for Kubernetes. */
export function containerdConfig(): string {
  return `
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${POD_IMAGE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`;
}

/** kube-proxy's, as JSON; what it would set for the whole machine is left as it is. */
export function proxyConfig(kubeconfig: string): string {
  return JSON.stringify({
    apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
    kind: 'KubeProxyConfiguration',
    clientConnection: { kubeconfig },
    mode: 'iptables',
    clusterCIDR: PODS,
    conntrack: {
      maxPerCore: 0,
      min: 0,
      tcpEstablishedTimeout: '0s',
      tcpCloseWaitTimeout: '0s',
    },
  });
}
