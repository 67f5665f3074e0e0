// Do mapped ports lead to the pod from everywhere, with each packet filter, protocol, family and form of hostIP?

import { describe, expect, test } from 'bun:test';
import path from 'node:path';
import { listenSctp, requiresSctp } from '../helpers/association.ts';
import { type Lab, type Namespace, useLabs } from '../helpers/netns.ts';
import type { PluginReply } from '../helpers/plugin.ts';
import {
  answers,
  BRIDGE,
  FAMILIES,
  type Pod,
  peerSeen,
  podsOnBridge,
  resultOf,
  type Scene,
  setHairpin,
  showBridged,
} from '../helpers/pods.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import { describeRoot, requires, testNeeding } from '../helpers/skip.ts';
import { startServer } from '../helpers/traffic.ts';

const BACKENDS = ['nftables', 'iptables'] as const;
const PROTOCOLS = ['tcp', 'udp'] as const;
const WEB = PROTOCOLS.map(protocol => ({ hostPort: 8080, containerPort: 80, protocol }));
const SCTP = path.resolve(import.meta.dir, '../fixtures/sctp.ts');

describeRoot(
  'traffic through mapped ports',
  () => {
    const createLab = useLabs();

    describe.each(BACKENDS)('%s', backend => {
      test.each([true, false])(
        'reaches the pod from everywhere, where the packet filter sees bridged packets: %p',
        async shown => {
          const scene = await podsOnBridge(createLab);
          const { lab, pod } = scene;
          await showBridged(lab, shown);
          // A packet that goes back to where it came from needs it only where the bridge itself turns it around.
          if (shown) await setHairpin(lab);
          for (const protocol of PROTOCOLS) await startServer(lab, pod, { protocol, port: 80 });
          expect(await call(lab, 'ADD', pod, backend, WEB)).toMatchObject({ exitCode: 0 });
          for (const family of FAMILIES) {
            const ways = waysTo(scene, family);
            for (const protocol of PROTOCOLS) {
              const seen = await Promise.all(
                ways.map(async ({ name, from, address }) => [
                  name,
                  await peerSeen(lab, from, protocol, address),
                ]),
              );
              // Who comes from elsewhere stays visible; who would not find the way back becomes the host.
              expect([protocol, family, seen]).toEqual([
                protocol,
                family,
                ways.map(({ name, peer }) => [name, peer]),
              ]);
            }
          }
          await call(lab, 'DEL', pod, backend, WEB);
          const [first] = waysTo(scene, 'v4');
          if (first) expect(await answers(lab, first.from, 'tcp', first.address)).toBe(false);
        },
      );

      const forms: readonly [string, readonly string[]][] = [
        ['', ['v4', 'v6', 'v4 bridge', 'v6 bridge', 'localhost']],
        ['0.0.0.0', ['v4', 'v4 bridge', 'localhost']],
        ['::', ['v6', 'v6 bridge']],
        ['127.0.0.1', ['localhost']],
        ['10.201.0.1', ['v4']],
        ['::ffff:10.201.0.1', ['v4']],
        ['fd00:201::1', ['v6']],
        ['fd00:9::1', ['v6 bridge']],
        // The kernel has no route_localnet for IPv6.
        ['::1', []],
      ];
      const mine = forms.filter((_, i) => !IS_SAMPLE || i % BACKENDS.length === BACKENDS.indexOf(backend));
      test.each(mine)('hostIP %p is treated as %p', async (hostIP, reached) => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        await startServer(lab, pod, { protocol: 'tcp', port: 80 });
        const mapping = { hostPort: 8080, containerPort: 80, protocol: 'tcp', hostIP };
        expect(await call(lab, 'ADD', pod, backend, [mapping])).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'CHECK', pod, backend, [mapping])).toMatchObject({ exitCode: 0 });
        const targets: [string, Namespace, string][] = [
          ['v4', outside, outside.hostAddress.v4],
          ['v6', outside, outside.hostAddress.v6],
          ['v4 bridge', outside, BRIDGE.v4],
          ['v6 bridge', outside, BRIDGE.v6],
          ['localhost', lab.host, '127.0.0.1'],
          ['v6 localhost', lab.host, '::1'],
        ];
        const got = await Promise.all(
          targets.map(async ([name, from, address]) =>
            (await answers(lab, from, 'tcp', address)) ? [name] : [],
          ),
        );
        expect(got.flat()).toEqual([...reached]);
      });

      test('a range of ports is forwarded to a range of ports, at both ends and in between', async () => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        const range = Array.from({ length: 40 }, (_, i) => ({
          hostPort: 9000 + i,
          containerPort: 100 + i,
          protocol: 'tcp',
        }));
        expect(await call(lab, 'ADD', pod, backend, range)).toMatchObject({ exitCode: 0 });
        for (const i of [0, 15, 39]) {
          await startServer(lab, pod, { protocol: 'tcp', port: 100 + i });
          expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4, 9000 + i)).toBe(true);
        }
        expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4, 9040)).toBe(false);
        expect(await call(lab, 'CHECK', pod, backend, range)).toMatchObject({ exitCode: 0 });
      });

      testNeeding(
        'SCTP reaches the pod over both families',
        async () => {
          const { lab, pod, outside } = await podsOnBridge(createLab);
          await silenceKernel(lab, pod, outside);
          const mapping = { hostPort: 9999, containerPort: 99, protocol: 'sctp' };
          for (const family of FAMILIES) {
            const version = family === 'v4' ? '4' : '6';
            const server = lab.start(pod, [process.execPath, SCTP, 'serve', version, '99']);
            const lines = server.stdout.getReader();
            expect(new TextDecoder().decode((await lines.read()).value)).toBe('ready\n');
            const ask = async (timeoutMs: number) => {
              const words = [outside.hostAddress[family], '9999', String(timeoutMs)];
              const { exitCode } = await lab.run(outside, [process.execPath, SCTP, 'ask', version, ...words]);
              return exitCode === 0;
            };
            expect(await call(lab, 'ADD', pod, backend, [mapping])).toMatchObject({ exitCode: 0 });
            expect(await ask(10_000)).toBe(true);
            const [peer] = new TextDecoder().decode((await lines.read()).value).split('\n');
            expect(peer).toBe(outside.address[family]);
            expect(await call(lab, 'CHECK', pod, backend, [mapping])).toMatchObject({ exitCode: 0 });
            await call(lab, 'DEL', pod, backend, [mapping]);
          }
        },
        requires('nft'),
      );

      testNeeding(
        'DEL deletes SCTP flows, so that the next pod gets what a client sends from the same port',
        async () => {
          const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
          await silenceKernel(lab, pod, neighbour, outside);
          const mapping = { hostPort: 9999, containerPort: 99, protocol: 'sctp' };
          for (const one of [pod, neighbour]) {
            const lines = lab.start(one, [process.execPath, SCTP, 'serve', '4', '99']).stdout.getReader();
            expect(new TextDecoder().decode((await lines.read()).value)).toBe('ready\n');
          }
          const ask = async () => {
            const words = [outside.hostAddress.v4, '9999', '10000', '36412'];
            return (await lab.run(outside, [process.execPath, SCTP, 'ask', '4', ...words])).exitCode === 0;
          };
          await call(lab, 'ADD', pod, backend, [mapping]);
          expect(await ask()).toBe(true);
          await lab.ip(lab.host, 'link', 'set', 'pod2', 'down');
          await call(lab, 'DEL', pod, backend, [mapping]);
          await call(lab, 'ADD', neighbour, backend, [mapping]);
          expect(await ask()).toBe(true);
        },
        requires('nft'),
      );

      for (const shown of [true, false]) {
        testNeeding(
          `SCTP associations reach the pod from everywhere, where the packet filter sees bridged packets: ${shown}`,
          async () => {
            const scene = await podsOnBridge(createLab);
            const { lab, pod } = scene;
            await showBridged(lab, shown);
            if (shown) await setHairpin(lab);
            const mapping = { hostPort: 8080, containerPort: 80, protocol: 'sctp' };
            expect(await call(lab, 'ADD', pod, backend, [mapping])).toMatchObject({ exitCode: 0 });
            for (const family of FAMILIES) {
              const server = listenSctp(pod, pod[family], 80);
              const ways = waysTo(scene, family);
              const seen: unknown[] = [];
              for (const { name, from, address } of ways) {
                seen.push([name, await server.peerSeen(from, address, 8080)]);
              }
              expect([family, seen]).toEqual([family, ways.map(({ name, peer }) => [name, peer])]);
              server.close();
            }
            expect(await call(lab, 'CHECK', pod, backend, [mapping])).toMatchObject({ exitCode: 0 });
            await call(lab, 'DEL', pod, backend, [mapping]);
            const server = listenSctp(pod, pod.v4, 80);
            const [first] = waysTo(scene, 'v4');
            if (first) expect(await server.peerSeen(first.from, first.address, 8080, 700)).toBe(undefined);
            server.close();
          },
          requiresSctp(),
        );
      }
    });
  },
  requires('ip', 'nft', 'iptables', 'ip6tables'),
);

interface Way {
  readonly name: string;
  readonly from: Namespace;
  readonly address: string;
  /** What the pod sees. */
  readonly peer: string;
}

function waysTo({ lab, pod, neighbour, outside }: Scene, family: 'v4' | 'v6'): Way[] {
  const host = outside.hostAddress[family];
  const bridge = BRIDGE[family];
  const local = { name: 'localhost', from: lab.host, address: '127.0.0.1', peer: bridge };
  return [
    { name: 'outside', from: outside, address: host, peer: outside.address[family] },
    { name: 'host', from: lab.host, address: host, peer: host },
    { name: 'host by the bridge', from: lab.host, address: bridge, peer: bridge },
    { name: 'neighbour', from: neighbour, address: host, peer: bridge },
    { name: 'neighbour by the bridge', from: neighbour, address: bridge, peer: bridge },
    { name: 'pod itself', from: pod, address: host, peer: bridge },
    ...(family === 'v4' ? [local] : []),
  ];
}

function call(
  lab: Lab,
  command: 'ADD' | 'CHECK' | 'DEL',
  pod: Pod,
  backend: string,
  portMappings: readonly object[],
): Promise<PluginReply> {
  const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'portmap', backend };
  return lab.plugin('portmap', {
    command,
    container: pod,
    conf: { ...conf, runtimeConfig: { portMappings } },
    prevResult: resultOf(pod),
  });
}

/** A kernel that knows SCTP would refuse an association that it did not begin. */
async function silenceKernel(lab: Lab, ...namespaces: Namespace[]): Promise<void> {
  const stdin = [
    'add table inet silence',
    'add chain inet silence output { type filter hook output priority 0; }',
    'add rule inet silence output sctp chunk abort exists drop',
    '',
  ].join('\n');
  // One that does not know it has nothing to be silenced, and perhaps no way to look into it.
  for (const ns of namespaces) await lab.run(ns, ['nft', '-f', '-'], { stdin });
}
