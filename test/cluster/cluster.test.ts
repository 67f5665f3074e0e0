// Do the parts of the cluster's harness that need no cluster say what is so?
import { describe, expect, test } from 'bun:test';
import { nodePlace, subnetFile } from './addresses.ts';
import { account, kubeconfig, tokenFile } from './certificates.ts';
import { differences } from './holdings.ts';
import { ipv4In, ipv6In } from './living.ts';
import { findUnclaimed, findWronglyHeld, type PoolObject } from './pool-checker.ts';
import { failedSandboxes, quantile, sandboxTimes } from './sandbox-times.ts';
import { tableOf } from './scenarios/figures.ts';
import { SCENARIOS } from './scenarios.ts';
import { callsIn } from './stopwatch.ts';

const POD = '&PodSandboxMetadata{Name:web,Uid:u-1,Namespace:ns,Attempt:0,}';
const OTHER = POD.replace('ns', 'other');
/** As containerd 1.6 writes it. */
const LOG = [
  ['52:55.471356478', `RunPodSandbox for ${POD}`],
  ['52:55.500000000', `RunPodSandbox for ${OTHER}`],
  ['52:56.621249115', `RunPodSandbox for ${POD} returns sandbox id \\"68d4\\"`],
  ['52:56.700000000', `RunPodSandbox for ${OTHER} returns sandbox id \\"79e5\\"`],
  ['52:57.000000000', 'StopPodSandbox for \\"68d4\\"'],
  ['52:57.500000000', 'StopPodSandbox for \\"68d4\\" returns successfully'],
  ['52:58.000000000', 'StopPodSandbox for \\"68d4\\"'],
  ['52:58.001000000', 'StopPodSandbox for \\"68d4\\" returns successfully'],
]
  .map(([at, text]) => `time="2026-11-24T03:${at}Z" level=info msg="${text}"`)
  .join('\n');

test('containerd’s log tells how long the sandboxes of a namespace took', () => {
  const { started, stopped } = sandboxTimes(LOG, 'ns');
  expect(started.map(Math.round)).toEqual([1150]);
  expect(stopped).toEqual([500]);
  expect(sandboxTimes(LOG).started).toHaveLength(2);
});

test('containerd’s log tells how often a sandbox of a namespace could not be started', () => {
  const failed = `time="2026-11-24T03:52:56Z" level=error msg="RunPodSandbox for ${POD} failed, error" error="plugin"`;
  expect(failedSandboxes(`${LOG}\n${failed}\n${failed.replace('ns', 'other')}`, 'ns')).toBe(1);
});

test('the addresses of a namespace are those that the kernel lists, without its own', () => {
  const tree = `Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 10.65.0.8/29 2 0 2
        |-- 10.65.0.8
           /29 link UNICAST
        |-- 10.65.0.10
           /32 host LOCAL
     |-- 127.0.0.1
        /32 host LOCAL
Local:
        |-- 10.65.0.10
           /32 host LOCAL
        |-- 10.65.0.15
           /32 link BROADCAST
`;
  expect(ipv4In(tree)).toEqual(['10.65.0.10']);
  const list = `00000000000000000000000000000001 01 80 10 80       lo
fd65000000000000000000000000000a 03 7d 00 80     net1
fe800000000000000000c4fffe0a0102 03 40 20 80     net1
`;
  expect(ipv6In(list)).toEqual(['fd65::a']);
});

describe('of addresses that a cluster’s nodes hold', () => {
  const ranges = [{ from: '10.65.0.10', to: '10.65.0.14', prefix: 29 }];
  const block = { pool: 'p', name: 'p-10.65.0.8', size: 8, state: 'held' as const, uid: 'u1', ranges };
  const pools = { networks: ['p'], isOfPool: (address: string) => address.startsWith('10.65.') };
  const node = (name: string, used: string[], leases: string[], blocks: (typeof block)[] = [block]) => ({
    name,
    living: used.map((address, i) => ({ netns: `net:[${i}]`, addresses: [address, '10.244.1.2'] })),
    networks: [{ name, claimant: { network: 'p' }, leases: () => leases, blocks: () => blocks }],
  });
  const object = (owner: string, uid = 'u1'): PoolObject => ({
    metadata: { name: block.name, uid, resourceVersion: '1' },
    spec: { pool: 'p', node: owner, network: 'p', size: 8, cidrs: ['10.65.0.8/29'], ranges },
  });

  test('one with a pod, a lease and a block is right', () => {
    expect(findWronglyHeld([node('a', ['10.65.0.10'], ['10.65.0.10'])], pools)).toEqual([]);
  });

  test('one is reported that has two pods, two leases, no lease or no block', () => {
    const one = ['10.65.0.10'];
    const found = (...nodes: ReturnType<typeof node>[]) => findWronglyHeld(nodes, pools);
    expect(found(node('a', one, one), node('b', one, one, []))).toEqual([
      '10.65.0.10 is used in net:[0] of a and in net:[0] of b',
      '10.65.0.10 is leased by a and by b',
      '10.65.0.10 is leased by b, which has no block with it',
    ]);
    expect(found(node('a', one, []))).toEqual(['10.65.0.10 is used in net:[0] of a without a lease']);
  });

  test('a block is reported whose object is gone, is another one, or is of another node', () => {
    const { networks } = node('a', [], []);
    const found = (...objects: PoolObject[]) =>
      findUnclaimed(networks, new Map(objects.map(one => [one.metadata.name, one])));
    expect(found(object('a'))).toEqual([]);
    expect(found()).toEqual(['a holds "p-10.65.0.8", of which there is no object']);
    expect(found(object('b'))).toEqual(['a holds "p-10.65.0.8", whose object is of b']);
    expect(found(object('a', 'u2'))).toEqual(['a holds "p-10.65.0.8", whose object is of a']);
  });
});

test('a quantile is one of the values', () => {
  expect(quantile([4, 1, 3, 2], 0.5)).toBe(3);
  expect(quantile([4, 1, 3, 2], 0.99)).toBe(4);
  expect(quantile([], 0.5)).toBeUndefined();
});

test('a table of figures has medians, their spread, and what part of the peer that is', () => {
  const run = (ms: number) => ({
    ...{ 'ADD p50': ms, 'ADD p99': ms, 'DEL p50': ms, 'DEL p99': ms },
    ...{ 'sandbox p50': ms, 'sandbox p99': ms, 'CPU a pod': ms },
  });
  const cells = [
    { side: { name: 'a', peer: 'b' }, pods: 1, runs: [run(3), run(1), run(2)] },
    { side: { name: 'b' }, pods: 1, runs: [run(4)] },
    { side: { name: 'b' }, pods: 30, runs: [] },
  ];
  const [, , ...rows] = tableOf(cells).trim().split('\n');
  expect(rows.map(row => row.split(' | ').slice(0, 3))).toEqual([
    ['| 1', 'a', '2 (1–3) ×0.50'],
    ['| 1', 'b', '4'],
    ['| 30', 'b', ''],
  ]);
});

test('calls of plugins for one container are one call, and a repeated DEL counts only as processor time', () => {
  const lines = [
    'ADD c1 loopback 1000000 3000000 500000',
    'ADD c1 bridge 1500000 9000000 2000000',
    'ADD c1 portmap 9000000 11000000 1000000',
    'DEL c1 bridge 20000000 25000000 2000000',
    'DEL c1 bridge 90000000 95000000 1000000',
    'ADD c2 catena 0 4000000 1000000',
    'VERSION - catena 0 1 0',
  ];
  expect(callsIn(`${lines.join('\n')}\n`)).toEqual([
    { verb: 'ADD', ms: 10, cpuMs: 3.5 },
    { verb: 'DEL', ms: 5, cpuMs: 3 },
    { verb: 'ADD', ms: 4, cpuMs: 1 },
  ]);
});

test('what a node has too much or too little is a line each', () => {
  const before = { devices: ['veth1'], elements: [], files: ['/a', '/b'] };
  const after = { devices: ['veth1', 'veth2'], elements: [], files: ['/a'] };
  expect(differences(before, after)).toEqual(['devices: veth2 remains', 'files: /b is gone']);
  expect(differences(before, before)).toEqual([]);
  expect(differences(before, after, /^veth2$/)).toEqual(['files: /b is gone']);
});

test('each node has addresses and a subnet of its own', () => {
  expect(nodePlace(2)).toEqual({ name: 'node2', address: '10.210.0.12', pods: '10.244.2.0/24' });
  expect(subnetFile(nodePlace(2))).toContain('FLANNEL_SUBNET=10.244.2.1/24\n');
});

test('an account is in the file of tokens and in a kubeconfig', () => {
  const node = account('system:node:node1', 'system:nodes');
  expect(tokenFile([node])).toBe(`${node.token},system:node:node1,0,"system:nodes"\n`);
  const { users, clusters } = JSON.parse(kubeconfig('https://api', '/ca.crt', node));
  expect(users).toEqual([{ name: node.user, user: { token: node.token } }]);
  expect(clusters[0].cluster).toEqual({ server: 'https://api', 'certificate-authority': '/ca.crt' });
});

test('scenarios have names of which namespaces can be made', () => {
  const names = SCENARIOS.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  expect(names.filter(name => !/^[a-z0-9][a-z0-9 -]{0,50}[a-z0-9]$/.test(name))).toEqual([]);
});
