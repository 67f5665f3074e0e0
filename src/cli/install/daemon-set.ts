// Which objects make Kubernetes install Catena on every node and keep its daemon running there?
import { type Blanks, fillBlanks } from '../fill-blanks.ts';
import { kubeconfigIn } from './kubeconfig.ts';
import type { PrintOptions } from './print-options.ts';
import accountText from './texts/account.yaml.txt' with { type: 'text' };
import setText from './texts/daemon-set.yaml.txt' with { type: 'text' };
import networkDefinition from './texts/network-definition.yaml.txt' with { type: 'text' };

/** Where the installing container sees the service account. */
const ACCOUNT_DIR = '/var/run/secrets/kubernetes.io/serviceaccount';
/** Where the host sees it: the kubelet's directory with the volumes of this pod, which it has only if a container of the pod mounts them. */
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

/** The minor release since which a container's AppArmor profile is a field: kubectl refuses a manifest with an unknown one. */
const APP_ARMOR_FIELD = 30;

/** The manifest, as YAML. */
export function daemonSet(options: PrintOptions): string {
  const { confDir, withDefinitions, withAccount, list } = options;
  return [
    '# Installs Catena on every node and runs its daemon there. Build the image with catena install --print containerfile.\n',
    // Network Custom Resource Definition De-facto Standard, version 1.3, section 3: its projects each bring the same kind.
    withDefinitions ? networkDefinition : '',
    list ? configMap(list) : '',
    withAccount
      ? fillBlanks(accountText, { ...rightsFor(list?.text), kubeconfig: kubeconfigIn(confDir) })
      : '',
    fillBlanks(setText, blanksFor(options)),
  ].join('');
}

function blanksFor(options: PrintOptions): Blanks {
  const { binDir, confDir, version, image, withAccount, withMetrics, kubernetes, list, replaced } = options;
  const hasAppArmorField = kubernetes >= APP_ARMOR_FIELD;
  const onHost = ['nsenter', '--target=1', '--mount', '--', `${binDir}/catena`];
  const metrics = withMetrics ? ['--metrics', `$(POD_IP):${METRICS_PORT}`] : [];
  const annotations = [
    ...(withMetrics ? ['prometheus.io/scrape: "true"', `prometheus.io/port: "${METRICS_PORT}"`] : []),
    ...(hasAppArmorField ? [] : ['container.apparmor.security.beta.kubernetes.io/daemon: unconfined']),
  ];
  return {
    ...{ binDir, confDir, version, image, withAccount, withMetrics, hasAppArmorField },
    ...{ list: list !== undefined, replaced: replaced !== undefined },
    annotations: annotations.join(', '),
    quotedBinDir: JSON.stringify(binDir),
    installArgs: JSON.stringify(installArgs(options)),
    replaceArgs: JSON.stringify([
      ...['install', '--bin-dir', `/host${binDir}`, '--force', '--keep-daemon'],
      ...(replaced ?? []).flatMap(name => ['--plugin', name]),
    ]),
    command: JSON.stringify([...onHost, 'daemon', ...metrics]),
    ping: JSON.stringify([...onHost, 'daemon', '--ping', '--deadline=4']),
    port: String(METRICS_PORT),
    accountDir: ACCOUNT_DIR,
    capabilities: Object.entries(DAEMON_CAPABILITIES)
      .map(([name, why]) => `                - ${name} # ${why}`)
      .join('\n'),
  };
}

function installArgs({ binDir, confDir, asDefault, withAccount, list, confName }: PrintOptions): string[] {
  return [
    ...['install', ...(list ? ['/etc/catena/network.conflist'] : [])],
    ...['--bin-dir', `/host${binDir}`, '--conf-dir', `/host${confDir}`],
    ...(confName ? ['--conf-name', confName] : []),
    ...(asDefault ? ['--as-default'] : []),
    ...(withAccount ? ['--account', ACCOUNT_DIR, '--account-on-host', ACCOUNT_ON_HOST] : []),
  ];
}

/** The plugins of the list, which may have rights of their own: networks of the runner may use any, and those of an unknown list, too. */
function rightsFor(text = '{ "type": "catena" }'): Blanks {
  const types = Array.from(text.matchAll(/"type"\s*:\s*"([^"]*)"/gi), ([, type = '']) => type);
  const runner = types.some(type => type === 'catena' || type === 'multus');
  return { ...Object.fromEntries(types.map(type => [type, true])), runner };
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
