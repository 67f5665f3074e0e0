// Does a chain with links of other projects, as people write them, pass validate, have an explanation, and run?
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { WELL_KNOWN } from '../../src/cli/foreign/well-known.ts';
import { CATENA } from '../helpers/catena.ts';
import { run } from '../helpers/command.ts';
import { readCalls } from '../helpers/noop-chain.ts';
import { ROOT } from '../helpers/source-tree.ts';

/** Lists with every documented option that a person would set. */
const LISTS: Record<string, Record<string, unknown>[]> = {
  mesh: [
    { type: 'cilium-cni', 'enable-debug': false, 'log-file': '/var/run/cilium/cni.log', mtu: 1450, ipam: {} },
    {
      type: 'route-override',
      flushroutes: false,
      flushgateway: true,
      delroutes: [{ dst: '192.0.2.0/24' }],
      addroutes: [{ dst: '198.51.100.0/24', gw: '10.88.0.254' }],
      skipcheck: true,
    },
    {
      type: 'istio-cni',
      plugin_log_level: 'info',
      log_uds_address: '/var/run/istio-cni/log.sock',
      cni_event_address: '/var/run/istio-cni/pluginevent.sock',
      ambient_enabled: true,
      exclude_namespaces: ['kube-system'],
      kubernetes: { kubeconfig: '/etc/cni/net.d/ZZZ-istio-cni-kubeconfig', cni_bin_dir: '/opt/cni/bin' },
    },
    {
      type: 'linkerd-cni',
      log_level: 'info',
      policy: { type: 'k8s', k8s_api_root: 'https://10.96.0.1:443' },
      kubernetes: { kubeconfig: '/etc/cni/net.d/ZZZ-linkerd-cni-kubeconfig' },
      linkerd: {
        'incoming-proxy-port': 4143,
        'outgoing-proxy-port': 4140,
        'proxy-uid': 2102,
        'ports-to-redirect': [],
        'inbound-ports-to-ignore': ['4191', '4190'],
        'outbound-ports-to-ignore': ['4567'],
        simulate: false,
        'use-wait-flag': false,
        ipv6: true,
      },
    },
    { type: 'cilium-cni', 'chaining-mode': 'generic-veth' },
  ],
  device: [
    {
      type: 'sriov',
      deviceID: '0000:03:02.3',
      vlan: 100,
      vlanQoS: 2,
      vlanProto: '802.1q',
      spoofchk: 'on',
      trust: 'off',
      link_state: 'auto',
      min_tx_rate: 0,
      max_tx_rate: 1000,
      capabilities: { mac: true },
    },
    { type: 'rdma' },
    { type: 'tc-redirect-tap' },
  ],
  bonded: [
    {
      type: 'bond',
      mode: 'active-backup',
      failOverMac: 1,
      linksInContainer: true,
      miimon: '100',
      mtu: 1500,
      links: [{ name: 'net1' }, { name: 'net2' }],
    },
  ],
  switched: [
    { type: 'ovs', bridge: 'br1', vlan: 100, trunk: [{ id: 42 }, { minID: 1000, maxID: 1010 }], mtu: 1500 },
  ],
};

let dir: string;
beforeAll(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-links-'));
  fs.mkdirSync(path.join(dir, 'bin'));
  const noop = `exec ${ROOT}/node_modules/.bin/bun ${ROOT}/test/fixtures/plugins/noop.ts`;
  for (const type of Object.keys(WELL_KNOWN)) {
    fs.writeFileSync(path.join(dir, 'bin', type), `#!/bin/sh\n${noop}\n`, { mode: 0o755 });
  }
});
afterAll(() => fs.rmSync(dir, { recursive: true, force: true }));

function catena(...args: string[]) {
  const [runDir, cacheDir] = [path.join(dir, 'run'), path.join(dir, 'cache')];
  return run([CATENA, ...args], {
    env: {
      NETCONFPATH: dir,
      CNI_PATH: path.join(dir, 'bin'),
      CATENA_RUN_DIR: runDir,
      CATENA_STATE_DIR: path.join(dir, 'state'),
      CNI_CACHE_DIR: cacheDir,
    },
  });
}

describe.each(Object.entries(LISTS))('list "%s"', (name, plugins) => {
  const write = (more: object): string => {
    const list = { cniVersion: '1.0.0', name, plugins: plugins.map(one => ({ ...one, ...more })) };
    const file = path.join(dir, `${name}.conflist`);
    fs.writeFileSync(file, JSON.stringify(list));
    return file;
  };

  test('has nothing that validate would warn of, and an explanation of each link', async () => {
    const checked = await catena('validate', write({}), '--json');
    expect([checked.exitCode, checked.stderr]).toEqual([0, '']);
    expect(JSON.parse(checked.stdout).findings).toEqual([]);
  });

  test('runs, and each link gets its options as written', async () => {
    const log = path.join(dir, `${name}.log`);
    write({ commandLog: log });
    for (const verb of ['add', 'check', 'del']) {
      const done = await catena(verb, name, '/run/netns/x', '--container-id', 'c1');
      expect([verb, done.exitCode]).toEqual([verb, 0]);
    }
    const asked = (verb: string) =>
      readCalls(log)
        .filter(({ command }) => command === verb)
        .map(({ request }) => request);
    expect(asked('ADD')).toMatchObject(plugins.map(({ capabilities: _, ...options }) => options));
    const order = (verb: string) => asked(verb).map(({ type }) => type);
    expect(order('DEL')).toEqual(order('ADD').toReversed());
  });
});

test('every plugin that tools know is a link of one of these lists', () => {
  const types = Object.values(LISTS).flatMap(plugins => plugins.map(plugin => String(plugin.type)));
  expect([...new Set(types)].sort()).toEqual(Object.keys(WELL_KNOWN).sort());
});

test('validate tells a mistake in their options', async () => {
  const plugins = [
    { type: 'sriov', vlan: 5000, spoofchk: true, spofchk: 'on' },
    { type: 'route-override', addroutes: [{ gw: '10.0.0.1' }] },
  ];
  const file = path.join(dir, 'wrong.conflist');
  fs.writeFileSync(file, JSON.stringify({ cniVersion: '1.0.0', name: 'wrong', plugins }));
  const { exitCode, stdout } = await catena('validate', file, '--json');
  fs.rmSync(file);
  expect(exitCode).toBe(1);
  const { findings } = JSON.parse(stdout);
  expect(findings.map(({ rule, message }: Record<string, string>) => `${rule}: ${message}`)).toEqual([
    expect.stringContaining('"vlan"'),
    expect.stringContaining('"spoofchk"'),
    'unknown-key: key "spofchk" is not known; did you mean "spoofchk"?',
    expect.stringContaining('"addroutes[0].dst"'),
  ]);
});
