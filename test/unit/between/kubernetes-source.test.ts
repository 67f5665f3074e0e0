// Are nodes learned from a cluster's API, live, and kept while it does not answer?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { NodeEvents, NodeSource } from '../../../src/between/claims.ts';
import { describedNode, openKubernetesSource } from '../../../src/between/kubernetes-source.ts';
import { WATCH_LIMITS } from '../../../src/delegate/object-watch.ts';
import { parseIp } from '../../../src/net/ip.ts';
import { nameOf } from '../../../src/pools/pool.ts';
import { type ApiServer, startApiServer } from '../../helpers/kubernetes.ts';
import { describeNeeding, requires } from '../../helpers/skip.ts';
import { until } from '../../helpers/until.ts';

let dir: string;
let told: string[];
let problems: string[];
let refused: readonly string[] = [];
const open: NodeSource[] = [];
const events: NodeEvents = {
  nodes(nodes, more) {
    refused = more?.problems ?? [];
    told.push(nodes.map(({ name, blocks }) => `${name}:${blocks.length}`).join(' '));
  },
  problem: text => void problems.push(text),
};

beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-nodes-'));
  [told, problems] = [[], []];
});
afterEach(() => {
  for (const source of open.splice(0)) source.close();
  fs.rmSync(dir, { recursive: true, force: true });
});

const last = (texts: readonly string[]) => texts.at(-1);

function kubeNode(name: string, blocks: string[], address = '192.0.2.1') {
  const addresses = [
    { type: 'Hostname', address: name },
    { type: 'InternalIP', address },
    { type: 'ExternalIP', address: '203.0.113.1' },
  ];
  return {
    kind: 'Node',
    metadata: { name },
    spec: { podCIDR: blocks[0], podCIDRs: blocks },
    status: { addresses },
  };
}

test('describedNode() takes internal addresses and ranges', () => {
  const expected = { name: 'x', addresses: ['192.0.2.1'], blocks: ['10.1.0.0/24', 'fd00::/64'] };
  expect(describedNode(kubeNode('x', ['10.1.0.0/24', 'fd00::/64']))).toEqual(expected);
  expect(describedNode({ metadata: { name: 'x' } })).toEqual({ name: 'x', addresses: [], blocks: [] });
  expect(describedNode({ metadata: { name: 'x' }, spec: { podCIDR: '10.1.0.0/24' } })?.blocks).toEqual([
    '10.1.0.0/24',
  ]);
  expect(describedNode({})).toBeUndefined();
});

describeNeeding(
  'openKubernetesSource()',
  () => {
    let api: ApiServer;
    beforeEach(async () => {
      api = await startApiServer(dir);
    });
    afterEach(() => api.close());
    const put = (name: string, blocks: string[], address?: string) =>
      api.collections.put(`/api/v1/nodes/${name}`, kubeNode(name, blocks, address));
    const begin = (catchUpMs = 0, ranges: 'kubernetes' | 'blocks' = 'kubernetes', more = {}) => {
      const limits = { ...WATCH_LIMITS, backoffMs: { first: 1, last: 20 }, catchUpMs, ...more };
      open.push(
        openKubernetesSource({ kubeconfig: api.kubeconfig, timeoutMs: 5_000 }, events, ranges, limits),
      );
    };

    test('tells nodes that come, change and go, and nothing for what does not matter', async () => {
      put('a', ['10.244.1.0/24']);
      begin();
      await until(() => last(told) === 'a:1');
      put('b', ['10.244.2.0/24', 'fd00:2::/64']);
      await until(() => last(told) === 'a:1 b:2');
      const object = api.objects.get('/api/v1/nodes/b') ?? {};
      api.collections.put('/api/v1/nodes/b', { ...object, status: { ...object.status, images: ['new'] } });
      await Bun.sleep(300);
      expect(told).toHaveLength(2);
      api.collections.remove('/api/v1/nodes/b');
      await until(() => last(told) === 'a:1');
    });

    test('takes the blocks that nodes claimed, of routed pools alone', async () => {
      const block = (node: string, subnet: string, prefix: number) => {
        const [first = ''] = subnet.split('/');
        const ranges = [{ from: first, to: first, prefix }];
        const pool = first.includes(':') ? 'six' : 'default';
        return {
          metadata: { name: `${pool}-${nameOf(parseIp(first))}` },
          spec: {
            pool: first.includes(':') ? 'six' : 'default',
            node,
            network: 'pods',
            size: 64,
            cidrs: [subnet],
            ranges,
          },
        };
      };
      const claim = (name: string, object: object) =>
        api.collections.put(`/apis/catena.cni.cncf.io/v1alpha1/blocks/${name}`, object);
      put('a', ['10.244.1.0/24']);
      put('b', []);
      const putPool = (name: string, subnet: object) =>
        api.collections.put(`/apis/catena.cni.cncf.io/v1alpha1/pools/${name}`, {
          metadata: { name },
          spec: { subnets: [subnet] },
        });
      putPool('default', { ipv4: '10.64.0.0/16' });
      putPool('six', { ipv6: 'fd00::/64' });
      claim('one', block('a', '10.64.0.0/26', 26));
      claim('flat', block('a', '10.99.1.0/26', 16));
      begin(0, 'blocks');
      await until(() => last(told) === 'a:1 b:0');
      claim('two', block('b', '10.64.0.64/26', 26));
      claim('six', block('b', 'fd00::/122', 122));
      await until(() => last(told) === 'a:1 b:2');
      api.collections.remove('/apis/catena.cni.cncf.io/v1alpha1/blocks/two');
      await until(() => last(told) === 'a:1 b:1');
      expect(refused).toEqual([]);
      // Parts of others' blocks, what no pool has, and another size: objects that any node can write.
      claim('part', block('b', '10.64.0.2/32', 32));
      claim('world', block('b', '8.8.8.0/26', 26));
      claim('wide', block('b', '10.64.4.0/22', 22));
      // A node that the cluster does not have, as one that was renamed.
      claim('renamed', block('old', '10.64.9.0/26', 26));
      claim('renamed-flat', block('older', '10.99.2.0/26', 16));
      await until(() => refused.length === 3 && last(told) === 'a:1 b:1 old:1 older:0');
      expect(problems).toEqual([]);
    });

    test('more blocks of one node than it keeps leave those of all others known', async () => {
      const claim = (node: string, i: number) =>
        api.collections.put(`/apis/catena.cni.cncf.io/v1alpha1/blocks/${node}-${i}`, {
          metadata: { name: `default-${nameOf(parseIp(`10.64.${i}.0`))}` },
          spec: {
            ...{ pool: 'default', node, network: 'pods', size: 64, cidrs: [`10.64.${i}.0/26`] },
            ranges: [{ from: `10.64.${i}.0`, to: `10.64.${i}.0`, prefix: 26 }],
          },
        });
      for (const name of ['a', 'hostile']) put(name, []);
      api.collections.put('/apis/catena.cni.cncf.io/v1alpha1/pools/default', {
        metadata: { name: 'default' },
        spec: { subnets: [{ ipv4: '10.64.0.0/16' }] },
      });
      for (let i = 0; i < 20; i++) claim('hostile', i);
      begin(0, 'blocks', { objects: 8, ofOne: 4 });
      await until(() => last(told) === 'a:0 hostile:4');
      for (const i of [20, 21]) claim('a', i);
      await until(() => last(told) === 'a:2 hostile:4');
      for (let i = 0; i < 20; i++)
        api.collections.remove(`/apis/catena.cni.cncf.io/v1alpha1/blocks/hostile-${i}`);
      claim('hostile', 30);
      await until(() => last(told) === 'a:2 hostile:1');
      expect(problems).toEqual([]);
    });

    test('keeps the nodes while the server is away, and tells what changed during that time', async () => {
      put('a', ['10.244.1.0/24']);
      put('b', ['10.244.2.0/24']);
      begin(100);
      await until(() => last(told) === 'a:1 b:1');
      api.answer(503);
      api.collections.cut();
      await until(() => problems.length > 0);
      api.collections.remove('/api/v1/nodes/b');
      await Bun.sleep(200);
      expect(told).toEqual(['a:1 b:1']);
      // The server no longer has the changes: the nodes are listed again.
      api.collections.compact();
      api.answer(undefined);
      await until(() => last(told) === 'a:1');
      expect(told).toEqual(['a:1 b:1', 'a:1']);
    });

    test('tells the nodes again when the server is back, though they are the same', async () => {
      put('a', ['10.244.1.0/24']);
      begin();
      await until(() => last(told) === 'a:1');
      api.answer(503);
      api.collections.cut();
      await until(() => problems.length > 0);
      api.answer(undefined);
      await until(() => told.length > 1);
      expect(last(told)).toBe('a:1');
    });
  },
  requires('openssl'),
);
