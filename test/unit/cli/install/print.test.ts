// Are the printed files what systemd, Kubernetes and podman understand?
import { expect, test } from 'bun:test';
import { DAEMON_CAPABILITIES } from '../../../../src/cli/install/daemon-set.ts';
import { printFor } from '../../../../src/cli/install/print.ts';
import { PRINTABLE } from '../../../../src/cli/install/print-options.ts';
import { parseMetricsAddress } from '../../../../src/daemon/metrics-listener.ts';
import { findShapeProblems } from '../../../helpers/kubernetes-shape.ts';

const OPTIONS = {
  binDir: '/opt/cni/bin',
  confDir: '/etc/cni/net.d',
  version: '1.2.3',
  asDefault: true,
  withAccount: false,
  withMetrics: false,
  withDefinitions: false,
  image: 'localhost/catena:1.2.3',
  kubernetes: 30,
  home: '/srv/catena',
};
const TEXT = '{\n  "cniVersion": "1.0.0",\n  "name": "net",\n  "plugins": [{ "type": "ptp" }]\n}\n';
const LIST = { name: 'net', text: TEXT };

// biome-ignore lint/suspicious/noExplicitAny: manifests are only ever compared
const yaml = (options: object): any[] =>
  printFor('daemonset', { ...OPTIONS, ...options })
    .split(/^---$/m)
    .map(text => Bun.YAML.parse(text));

test('the DaemonSet brings the kind of network definitions and runs another image, if asked', () => {
  const [kind, set] = yaml({ withDefinitions: true, image: 'registry.example/catena:7' });
  expect(kind).toMatchObject({
    metadata: { name: 'network-attachment-definitions.k8s.cni.cncf.io' },
    spec: { names: { kind: 'NetworkAttachmentDefinition' }, versions: [{ name: 'v1' }] },
  });
  const { initContainers, containers } = set.spec.template.spec;
  expect([...initContainers, ...containers].map(({ image }) => image)).toEqual(
    Array(2).fill('registry.example/catena:7'),
  );
});

test('a list whose first line is indented is the one that is installed', () => {
  const text = `\n   ${TEXT}`;
  const [map] = yaml({ list: { ...LIST, text } });
  expect(JSON.parse(map.data['network.conflist'])).toEqual(JSON.parse(TEXT));
});

test('the systemd units start the daemon from the plugin directory by its socket, and are notified when it is ready', () => {
  const unit = printFor('systemd', OPTIONS);
  const keys = Object.fromEntries(
    unit.split('\n').flatMap(line => [line.split(/=(.*)/s) as [string, string]]),
  );
  expect(keys).toMatchObject({
    Type: 'notify',
    WatchdogSec: '30',
    RestartPreventExitStatus: '3',
    ExecStart: '/opt/cni/bin/catena daemon',
    RuntimeDirectory: 'catena',
    RuntimeDirectoryPreserve: 'yes',
    ListenStream: '/run/catena/catena.sock.start',
    Symlinks: '/run/catena/catena.sock /run/catena/catena.sock.wire',
    WantedBy: 'sockets.target',
  });
  // In a mount namespace of its own the daemon would decline every call.
  const used = unit.split('\n').filter(line => /^[A-Z]\w+=/.test(line));
  expect(
    used.filter(line => /^(Private|Protect|ReadOnly|Inaccessible|Root|Restrict(Name|Addr)|User)/.test(line)),
  ).toEqual([]);
});

test('the unit names a directory of any name as systemd reads it', () => {
  const unit = printFor('systemd', { ...OPTIONS, binDir: '/opt/my "cni" 50%/bin' });
  expect(unit).toContain('\nExecStart="/opt/my \\"cni\\" 50%%/bin/catena" daemon\n');
});

test('the DaemonSet mounts both directories of the host and installs the list', () => {
  const [map, set] = yaml({ list: LIST });
  expect(map).toMatchObject({ kind: 'ConfigMap', data: { 'network.conflist': TEXT } });
  const pod = set.spec.template.spec;
  const [install] = pod.initContainers;
  expect(install.args).toEqual([
    ...['install', '/etc/catena/network.conflist', '--bin-dir', '/host/opt/cni/bin'],
    ...['--conf-dir', '/host/etc/cni/net.d', '--as-default'],
  ]);
  const paths = pod.volumes.flatMap((volume: { hostPath?: { path: string } }) => volume.hostPath?.path ?? []);
  expect(paths.slice(0, 2)).toEqual(['/opt/cni/bin', '/etc/cni/net.d']);
  const volumes = pod.volumes.map(({ name }: { name: string }) => name);
  expect(install.volumeMounts.map(({ name }: { name: string }) => name).sort()).toEqual(volumes.sort());
  expect(set.spec.template.metadata.labels).toEqual(set.spec.selector.matchLabels);
});

const RUNNER = ['pods: get list watch', 'pods/status: patch', 'events: create'];
const NODES = 'nodes: get list watch';
const CLUSTER = [
  'ipamclaims: get',
  'pools: get list watch create update',
  'blocks: get list watch create update delete',
  'addresses: get list watch create update delete',
];
const WHEREABOUTS = [
  'ippools: get list create patch',
  'overlappingrangeipreservations: get create delete',
  'nodeslicepools: get',
];
const ALL = [
  ...RUNNER,
  'network-attachment-definitions: get list watch',
  'ipamclaims/status: patch',
  'resourceclaims: get',
  'resourceslices: list',
  ...[NODES, ...CLUSTER, ...WHEREABOUTS],
];

test.each([
  ['no list', undefined, ALL],
  ['the delegate runner', '{ "type": "catena" }', ALL],
  ['the delegate runner under its other name', '{ "type": "multus" }', ALL],
  ['addresses of a cluster', '{ "type": "bridge", "ipam": { "type": "cluster" } }', [NODES, ...CLUSTER]],
  ['whereabouts', '{ "type": "macvlan", "ipam": {"type":"whereabouts"} }', [NODES, ...WHEREABOUTS]],
  ['neither', '{ "type": "ptp" }', [NODES]],
])('the account of the DaemonSet has the rights that its list needs: %s', (_, plugin, expected) => {
  const text = plugin && `{ "cniVersion": "1.0.0", "name": "net", "plugins": [${plugin}] }`;
  const objects = yaml({ withAccount: true, ...(text ? { list: { name: 'net', text } } : {}) });
  const { rules } = objects.find(({ kind }) => kind === 'ClusterRole');
  const named = rules.flatMap(({ resources, verbs }: { resources: string[]; verbs: string[] }) =>
    resources.map(resource => `${resource}: ${verbs.join(' ')}`),
  );
  expect(named).toEqual(expected);
});

test('the DaemonSet has a service account on request', () => {
  const objects = yaml({ list: LIST, withAccount: true });
  const of = (kind: string) => objects.find(object => object.kind === kind);
  expect(objects.map(({ kind }) => kind)).toEqual([
    'ConfigMap',
    'ServiceAccount',
    'ClusterRole',
    'ClusterRoleBinding',
    'DaemonSet',
  ]);
  expect(of('ClusterRole').rules.map(({ resources }: { resources: string[] }) => resources)).toEqual([
    ['nodes'],
  ]);
  const { name, namespace } = of('ServiceAccount').metadata;
  expect(of('ClusterRoleBinding').subjects).toEqual([{ kind: 'ServiceAccount', name, namespace }]);
  const pod = of('DaemonSet').spec.template.spec;
  expect(pod.serviceAccountName).toBe(name);
  const [install] = pod.initContainers;
  const [dir, onHost] = ['--account', '--account-on-host'].map(
    option => install.args[install.args.indexOf(option) + 1],
  );
  const mount = install.volumeMounts.find(({ mountPath }: { mountPath: string }) => mountPath === dir);
  // Where the kubelet has it.
  expect(onHost).toBe(
    `/var/lib/kubelet/pods/$(${install.env[0].name})/volumes/kubernetes.io~projected/${mount.name}`,
  );
  const volume = pod.volumes.find((one: { name: string }) => one.name === mount.name);
  expect(volume.projected.sources.map((source: object) => Object.keys(source)[0])).toEqual([
    'serviceAccountToken',
    'configMap',
  ]);
});

test('the DaemonSet for Kubernetes before 1.30 has AppArmor’s annotation in place of the field', () => {
  const [{ spec }] = yaml({ kubernetes: 20, withMetrics: true });
  expect(spec.template.spec.containers[0].securityContext).not.toHaveProperty('appArmorProfile');
  expect(spec.template.metadata.annotations).toEqual({
    'prometheus.io/scrape': 'true',
    'prometheus.io/port': '9464',
    'container.apparmor.security.beta.kubernetes.io/daemon': 'unconfined',
  });
});

test('the DaemonSet keeps the daemon in the mount namespace of the host, where runtimes call it', () => {
  const [set] = yaml({});
  const { containers, hostNetwork, hostPID } = set.spec.template.spec;
  expect({ hostNetwork, hostPID }).toEqual({ hostNetwork: true, hostPID: true });
  expect(containers[0].command).toEqual([
    ...['nsenter', '--target=1', '--mount', '--', '/opt/cni/bin/catena', 'daemon'],
  ]);
});

test('the DaemonSet has capabilities and is not privileged', () => {
  const [{ spec }] = yaml({});
  const [{ securityContext }] = spec.template.spec.containers;
  expect(securityContext).toEqual({
    runAsUser: 0,
    capabilities: { drop: ['ALL'], add: Object.keys(DAEMON_CAPABILITIES) },
    seLinuxOptions: { type: 'spc_t', level: 's0' },
    appArmorProfile: { type: 'Unconfined' },
    seccompProfile: { type: 'Unconfined' },
  });
  // Kubernetes refuses to forbid the escalation of what has SYS_ADMIN.
  expect(securityContext).not.toHaveProperty('allowPrivilegeEscalation');
  const [install] = spec.template.spec.initContainers;
  expect(install.securityContext.capabilities).toEqual({ drop: ['ALL'] });
});

test('the DaemonSet asks the daemon of the host whether it lives, and gives it time to start and to end', () => {
  const [{ spec }] = yaml({ binDir: '/usr/libexec/cni' });
  const [daemon] = spec.template.spec.containers;
  const command = [...daemon.command.slice(0, -1), 'daemon', '--ping', '--deadline=4'];
  for (const probe of [daemon.startupProbe, daemon.readinessProbe, daemon.livenessProbe]) {
    expect(probe.exec).toEqual({ command });
    // The command says why it fails before the kubelet ends it.
    expect(probe.timeoutSeconds).toBe(5);
  }
  const { periodSeconds, failureThreshold } = daemon.startupProbe;
  expect(periodSeconds * failureThreshold).toBe(60);
  // The longest that requests have, by the daemon's own unit as well.
  const seconds = spec.template.spec.terminationGracePeriodSeconds;
  expect(printFor('systemd', OPTIONS)).toContain(`TimeoutStopSec=${seconds}\n`);
});

test('the DaemonSet runs on every Linux node, before all pods, and is replaced node by node', () => {
  const [{ spec }] = yaml({});
  expect(spec).toMatchObject({
    minReadySeconds: 10,
    updateStrategy: { type: 'RollingUpdate', rollingUpdate: { maxUnavailable: '10%' } },
  });
  expect(spec.template.spec).toMatchObject({
    nodeSelector: { 'kubernetes.io/os': 'linux' },
    priorityClassName: 'system-node-critical',
    tolerations: [{ operator: 'Exists' }],
  });
  const [{ resources }] = spec.template.spec.containers;
  expect(resources).toEqual({ requests: { cpu: '250m', memory: '192Mi' }, limits: { memory: '1Gi' } });
});

test('the DaemonSet serves metrics on request only, at the address of the node', () => {
  const [silent] = yaml({});
  expect(JSON.stringify(silent)).not.toContain('metrics');
  const [{ spec }] = yaml({ withMetrics: true });
  const [daemon] = spec.template.spec.containers;
  const address = daemon.command[daemon.command.indexOf('--metrics') + 1];
  const [{ containerPort, hostPort }] = daemon.ports;
  expect(hostPort).toBe(containerPort);
  for (const hostname of ['192.0.2.7', 'fd00::7'])
    expect(parseMetricsAddress(address.replace('$(POD_IP)', hostname))).toEqual({
      hostname,
      port: containerPort,
    });
  expect(daemon.env).toContainEqual({
    name: 'POD_IP',
    valueFrom: { fieldRef: { fieldPath: 'status.podIP' } },
  });
  expect(spec.template.metadata.annotations['prometheus.io/port']).toBe(String(containerPort));
});

test.each([[{ list: LIST }], [{ asDefault: false }], [{ list: LIST, withAccount: true, withMetrics: true }]])(
  'Kubernetes knows every field of the DaemonSet',
  options => {
    const problems = yaml(options).flatMap(object => findShapeProblems(object, `V1${object.kind}`));
    expect(problems).toEqual([]);
  },
);

test('findShapeProblems() reports fields unknown to Kubernetes', () => {
  const wrong = {
    kind: 'DaemonSet',
    spec: { template: { spec: { containers: [{ nam: 'x', image: 1 }] } }, x: 1 },
  };
  expect(findShapeProblems(wrong, 'V1DaemonSet')).toEqual([
    'spec.template.spec.containers.0.nam: V1Container has no such field',
    'spec.template.spec.containers.0.image: expected string, found 1',
    'spec.x: V1DaemonSetSpec has no such field',
  ]);
});

test('the DaemonSet without a list installs executables only', () => {
  const [set, ...more] = yaml({ asDefault: false });
  expect(more).toEqual([]);
  expect(set.spec.template.spec.initContainers[0].args).toEqual([
    ...['install', '--bin-dir', '/host/opt/cni/bin', '--conf-dir', '/host/etc/cni/net.d'],
  ]);
});

test('the Containerfile contains the command and the Bun program', () => {
  expect(printFor('containerfile', OPTIONS)).toContain('COPY catena catena-core /usr/local/bin/\n');
});

test('the kinds of cluster-wide addresses have schemas and columns, and the account may use them', () => {
  const kinds = printFor('crds', OPTIONS)
    .split(/^---$/m)
    // biome-ignore lint/suspicious/noExplicitAny: manifests are only ever compared
    .map((text): any => Bun.YAML.parse(text))
    .filter(({ kind }) => kind === 'CustomResourceDefinition');
  expect(kinds.flatMap(kind => findShapeProblems(kind, 'V1CustomResourceDefinition'))).toEqual([]);
  for (const { spec } of kinds) {
    const [version] = spec.versions;
    expect(version.schema.openAPIV3Schema.properties.spec.required.length).toBeGreaterThan(0);
    expect(version.additionalPrinterColumns.length).toBeGreaterThan(3);
  }
  const [, role] = yaml({ withAccount: true });
  const allowed = role.rules.flatMap((rule: { apiGroups: string[]; resources: string[] }) =>
    rule.apiGroups.includes(kinds[0].spec.group) ? rule.resources : [],
  );
  expect(allowed.sort()).toEqual(kinds.map(({ spec }) => spec.names.plural).sort());
});

test('beside them, a policy keeps each node from the blocks of others', () => {
  const [policy, binding] = printFor('crds', OPTIONS)
    .split(/^---$/m)
    // biome-ignore lint/suspicious/noExplicitAny: manifests are only ever compared
    .map((text): any => Bun.YAML.parse(text))
    .slice(3);
  expect(findShapeProblems(policy, 'V1ValidatingAdmissionPolicy')).toEqual([]);
  expect(findShapeProblems(binding, 'V1ValidatingAdmissionPolicyBinding')).toEqual([]);
  expect(binding.spec.policyName).toBe(policy.metadata.name);
  expect(policy.spec.validations[0].expression).toBe(
    "request.operation != 'CREATE' || (object.spec.node == variables.me)",
  );
  expect(printFor('crds', { ...OPTIONS, kubernetes: 29 })).not.toContain('Policy');
});

test.each(PRINTABLE)('the %s ends with a newline', what => {
  expect(printFor(what, { ...OPTIONS, list: LIST })).toMatch(/[^\n]\n$/);
});
