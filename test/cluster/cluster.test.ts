// Do the parts of the cluster's harness that need no cluster say what is so?
import { expect, test } from 'bun:test';
import { nodePlace, subnetFile } from './addresses.ts';
import { account, kubeconfig, tokenFile } from './certificates.ts';
import { histogramIn, quantileBetween } from './histograms.ts';
import { differences } from './holdings.ts';
import { quantile, sandboxTimes } from './sandbox-times.ts';
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

test('a quantile is one of the values', () => {
  expect(quantile([4, 1, 3, 2], 0.5)).toBe(3);
  expect(quantile([4, 1, 3, 2], 0.99)).toBe(4);
  expect(quantile([], 0.5)).toBeUndefined();
});

test('a histogram tells in which bucket a quantile of what came since lies', () => {
  const text = (counts: readonly number[]) =>
    ['0.1', '1', '+Inf']
      .map((le, i) => `t_bucket{verb="ADD",network="n",le="${le}"} ${counts[i]}`)
      .concat('t_bucket{verb="DEL",network="n",le="0.1"} 99', 't_sum{verb="ADD"} 7')
      .join('\n');
  const read = (counts: readonly number[]) => histogramIn(text(counts), 't', { verb: 'ADD' });
  const [before, after] = [read([5, 5, 5]), read([6, 14, 15])];
  expect([...after.keys()]).toEqual([0.1, 1, Number.POSITIVE_INFINITY]);
  expect(quantileBetween(before, after, 0.5)).toBe(1);
  expect(quantileBetween(before, after, 0.99)).toBe(Number.POSITIVE_INFINITY);
  expect(quantileBetween(after, after, 0.5)).toBeUndefined();
});

test('calls of plugins for one container are one call, and a repeated DEL counts once', () => {
  const lines = [
    'ADD c1 loopback 1000000 3000000 500000',
    'ADD c1 bridge 1500000 9000000 2000000',
    'ADD c1 portmap 9000000 11000000 1000000',
    'DEL c1 bridge 20000000 25000000 0',
    'DEL c1 bridge 90000000 95000000 0',
    'ADD c2 catena 0 4000000 1000000',
    'VERSION - catena 0 1 0',
  ];
  expect(callsIn(`${lines.join('\n')}\n`)).toEqual([
    { verb: 'ADD', ms: 10, cpuMs: 3.5 },
    { verb: 'DEL', ms: 5, cpuMs: 0 },
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
