// Are the printed files what systemd, Kubernetes and podman understand?
import { expect, test } from 'bun:test';
import { PRINTABLE, printFor } from '../../../src/install/print.ts';

const OPTIONS = {
  binDir: '/opt/cni/bin',
  confDir: '/etc/cni/net.d',
  version: '1.2.3',
  asDefault: true,
  home: '/srv/catena',
};
const TEXT = '{\n  "cniVersion": "1.0.0",\n  "name": "net",\n  "plugins": [{ "type": "ptp" }]\n}\n';
const LIST = { name: 'net', text: TEXT };

// biome-ignore lint/suspicious/noExplicitAny: manifests are only ever compared
const yaml = (options: object): any[] =>
  printFor('daemonset', { ...OPTIONS, ...options })
    .split(/^---$/m)
    .map(text => Bun.YAML.parse(text));

test('the systemd unit starts the daemon from the directory of plugins, and is told when it is ready', () => {
  const unit = printFor('systemd', OPTIONS);
  const keys = Object.fromEntries(
    unit.split('\n').flatMap(line => [line.split(/=(.*)/s) as [string, string]]),
  );
  expect(keys).toMatchObject({
    Type: 'notify',
    ExecStart: '/opt/cni/bin/catena daemon',
    RuntimeDirectory: 'catena',
    WantedBy: 'multi-user.target',
  });
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
  const mounts = [...install.volumeMounts, ...pod.containers[0].volumeMounts];
  expect(mounts.filter(({ name }: { name: string }) => !volumes.includes(name))).toEqual([]);
  expect(set.spec.template.metadata.labels).toEqual(set.spec.selector.matchLabels);
});

test('the DaemonSet without a list brings executables only', () => {
  const [set, ...more] = yaml({ asDefault: false });
  expect(more).toEqual([]);
  expect(set.spec.template.spec.initContainers[0].args).toEqual([
    ...['install', '--bin-dir', '/host/opt/cni/bin', '--conf-dir', '/host/etc/cni/net.d'],
  ]);
});

test('the Containerfile holds the executable', () => {
  expect(printFor('containerfile', OPTIONS)).toContain('COPY catena /usr/local/bin/catena\n');
});

test.each(PRINTABLE)('the %s ends with a line', what => {
  expect(printFor(what, { ...OPTIONS, list: LIST })).toMatch(/[^\n]\n$/);
});
