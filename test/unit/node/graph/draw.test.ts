// Is a node drawn as src/node/graph/README.md shows, and does text from outside stay text in every language?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { drawDot, drawMermaid, drawSvg, drawText } from '../../../../src/node/graph/draw.ts';
import type { NodeAttachment, NodeDevice, NodeModel } from '../../../../src/node/model.ts';
import { ROOT } from '../../../helpers/source-tree.ts';

const device = (name: string, kind: string, more: Partial<NodeDevice> = {}): NodeDevice => ({
  ...{ name, kind, index: 1, mtu: 1500, up: true, addresses: [] },
  ...more,
});

const attachment = (more: Partial<NodeAttachment>): NodeAttachment => ({
  ...{ network: 'shop-net', containerId: 'tool', ifname: 'eth0', state: 'attached', netns: '' },
  ...{ addresses: [], ports: [], rates: {}, policies: [], routes: [] },
  origin: { runner: 'catena', executables: [], evidence: '' },
  ...more,
});

const pod = (podName: string) => ({ podNamespace: 'shop', podName });

const NODE: NodeModel = {
  ...{ time: '2026-01-31T08:00:00.000Z', hostname: 'node-1', version: '0.2.0', networks: [], pools: [] },
  ...{ daemon: { state: 'none' }, notes: [] },
  attachments: [
    attachment({
      ...pod('web'),
      addresses: ['10.22.0.2/16'],
      ports: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
      rates: { ingressBits: 10_000_000 },
      hostDevice: device('veth1', 'veth', { master: 'cni0' }),
      health: { state: 'sound' },
    }),
    attachment({
      ...pod('db'),
      addresses: ['10.22.0.3/16'],
      health: { state: 'broken', problem: 'the pair is gone' },
    }),
    attachment({
      network: 'ptp-net',
      addresses: ['10.9.0.2/32'],
      hostDevice: device('veth3', 'veth'),
    }),
  ],
  bridges: [{ device: device('cni0', 'bridge', { addresses: ['10.22.0.1/16'] }), ports: ['eth1', 'veth1'] }],
};

test('the drawing with characters is the one that the page shows', () => {
  const page = fs.readFileSync(path.join(ROOT, 'src/node/graph/README.md'), 'utf8');
  const [, shown] = /```text\n(.*?)```/s.exec(page) ?? [];
  expect(drawText(NODE)).toBe(shown ?? '');
});

test('Mermaid has a box for each part, and marks what is broken', () => {
  expect(drawMermaid(NODE).split('\n')).toEqual([
    'flowchart LR',
    '  host["node-1"]',
    '  g0["cni0<br>10.22.0.1/16"]',
    '  g0u0(("eth1"))',
    '  g0a0("✓ shop/web<br>eth0<br>10.22.0.2/16")',
    '  g0a1("✕ shop/db<br>eth0<br>10.22.0.3/16")',
    '  g1["routed<br>by the host"]',
    '  g1a0("… tool<br>eth0<br>10.9.0.2/32")',
    '  host --- g0',
    '  g0 ---|"uplink"| g0u0',
    '  g0 ---|"veth1, 8080-#62;80"| g0a0',
    '  g0 --- g0a1',
    '  host --- g1',
    '  g1 ---|"veth3"| g1a0',
    '  classDef problem stroke:#c00,stroke-width:3px',
    '  class g0a1 problem',
    '',
  ]);
});

test('DOT has the same boxes and lines', () => {
  const dot = drawDot(NODE);
  expect(dot).toStartWith('graph node {\n');
  expect(dot).toContain(
    '  g0a1 [label="✕ shop/db\\neth0\\n10.22.0.3/16", style=rounded, color=red, penwidth=3];\n',
  );
  expect(dot).toContain('  g0 -- g0a0 [label="veth1, 8080->80"];\n');
});

describe('names that hold markup', () => {
  const name = 'a"b<script>&\\;#';
  const [first] = NODE.attachments;
  const node = { ...NODE, hostname: name, attachments: [{ ...(first as NodeAttachment), podName: name }] };

  test('are entities in SVG', () => {
    const svg = drawSvg(node);
    expect(svg).not.toContain('<script');
    expect(svg).toContain('&#60;');
    const tags = svg.match(/<[^>]*>/g) ?? [];
    expect(tags.filter(tag => !/^<\/?(svg|style|path|rect|text|g|title)\b/.test(tag))).toEqual([]);
  });

  test('are entities in Mermaid', () => {
    expect(drawMermaid(node)).toContain('host["a#34;b#60;script#62;#38;\\#59;#35;"]');
  });

  test('are quoted in DOT', () => {
    expect(drawDot(node)).toContain('host [label="a\\"b<script>&\\\\;#"]');
  });
});
