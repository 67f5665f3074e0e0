// Do conditions apply to their own attachment only, and at no cost to others?

import { describe, expect, test } from 'bun:test';
import { type Lab, type Namespace, useLabs } from '../helpers/netns.ts';
import type { PluginReply } from '../helpers/plugin.ts';
import {
  addPod,
  answers,
  BRIDGE,
  FAMILIES,
  fakePod,
  type Pod,
  peerSeen,
  podsOnBridge,
  resultOf,
} from '../helpers/pods.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { startServer } from '../helpers/traffic.ts';

interface Call {
  readonly network?: string;
  readonly conf?: object;
  readonly ports?: object[];
}

const PROTOCOLS = ['tcp', 'udp'] as const;
const WEB = PROTOCOLS.map(protocol => ({ hostPort: 8080, containerPort: 80, protocol }));
const TABLE = ['inet', 'catena_portmap'];

describeRoot(
  'portmap with conditions',
  () => {
    const createLab = useLabs();

    describe.each(FAMILIES)('over IP%s', family => {
      test.each(PROTOCOLS)('only matching clients reach the pod by %s', async protocol => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        await startServer(lab, pod, { protocol, port: 80 });
        const conf = whenFrom(family, outside.address[family]);
        expect(await call(lab, 'ADD', pod, { conf })).toMatchObject({ exitCode: 0 });
        const host = outside.hostAddress[family];
        expect(await peerSeen(lab, outside, protocol, host)).toBe(outside.address[family]);
        expect(await answers(lab, lab.host, protocol, host)).toBe(false);
        expect(await call(lab, 'CHECK', pod, { conf })).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'DEL', pod)).toMatchObject({ exitCode: 0 });
        expect(await answers(lab, outside, protocol, host)).toBe(false);
        expect(await elementsLeft(lab)).toEqual([]);
      });

      test('conditions do not apply to the other family, other ports and other attachments', async () => {
        const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
        for (const one of [pod, neighbour]) await startServer(lab, one, { protocol: 'tcp', port: 80 });
        await call(lab, 'ADD', pod, { conf: whenFrom(family, `!= ${outside.address[family]}`) });
        await call(lab, 'ADD', neighbour, { ports: [{ hostPort: 8081, containerPort: 80 }] });
        const other = family === 'v4' ? 'v6' : 'v4';
        expect(await answers(lab, outside, 'tcp', outside.hostAddress[family])).toBe(false);
        expect(await answers(lab, outside, 'tcp', outside.hostAddress[other])).toBe(true);
        for (const one of FAMILIES) {
          expect(await answers(lab, outside, 'tcp', outside.hostAddress[one], 8081)).toBe(true);
        }
      });
    });

    test.each([
      ['an interface', 'iifname outside0', ['outside']],
      ['all interfaces but one', 'iifname != { "outside0", "none0" }', ['host', 'neighbour']],
      ['interfaces that begin so', 'iifname out*', ['outside']],
      ['a source out of several', 'ip saddr { 10.201.0.2, 192.0.2.0/24 }', ['outside']],
      ['a range of sources', 'ip saddr 10.9.0.3-10.9.0.9', ['neighbour']],
      ['no source of a range', 'ip saddr != 10.9.0.1-10.9.0.9', ['outside', 'host']],
      ['a destination', 'ip daddr 10.9.0.1', ['neighbour']],
      ['a kind of source', 'fib saddr type local', ['host']],
      ['a state', 'ct state new', ['outside', 'host', 'neighbour']],
      ['no state', 'ct state established,related', []],
      ['source ports', 'tcp sport >= 1024', ['outside', 'host', 'neighbour']],
      ['few source ports', 'tcp sport < 1024', []],
      ['a protocol', 'meta l4proto udp', []],
      ['a mark', 'mark & 0xf0 == 0x10', ['outside']],
      ['several at once', 'iifname br0 ip saddr 10.9.0.0/24 ct state new', ['neighbour']],
    ])('understands %s: %s', async (_name, condition, reached) => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      await startServer(lab, pod, { protocol: 'tcp', port: 80 });
      await load(
        lab,
        'add table inet marks',
        'add chain inet marks prerouting { type filter hook prerouting priority -200; }',
        'add rule inet marks prerouting iifname outside0 meta mark set 0x13',
      );
      expect(await call(lab, 'ADD', pod, { conf: { conditionsV4: [condition] } })).toMatchObject({
        exitCode: 0,
      });
      const froms: [string, Namespace, string][] = [
        ['outside', outside, outside.hostAddress.v4],
        ['host', lab.host, outside.hostAddress.v4],
        ['neighbour', neighbour, BRIDGE.v4],
      ];
      const got: string[] = [];
      for (const [name, from, address] of froms) {
        if (await answers(lab, from, 'tcp', address)) got.push(name);
      }
      expect(got).toEqual(reached);
    });

    test('nft prints the configured conditions, and accepts its own output', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const words =
        'ip saddr != 10.0.0.0/8 iifname != "eth*" tcp dport 80-90 meta mark & 0x000000ff == 0x00000010';
      await call(lab, 'ADD', pod, { conf: { conditionsV4: words.split(' ') } });
      const listed = (await lab.run(lab.host, ['nft', 'list', 'table', ...TABLE])).stdout;
      expect(listed).toContain(`${words} jump when4_`);
      await load(lab, 'flush ruleset');
      expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin: listed })).toMatchObject({ exitCode: 0 });
    });

    test('a port may have other targets under other conditions, those without come last, and none is taken twice', async () => {
      const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
      const third = await addPod(lab, 4);
      for (const [i, one] of [pod, neighbour, third].entries()) {
        await startServer(lab, one, { protocol: 'tcp', port: 80 + i });
      }
      const to = (containerPort: number) => [{ hostPort: 8080, containerPort }];
      const from = (name: string) => ({ conditionsV4: ['iifname', name], conditionsV6: ['iifname', name] });
      const [fromOutside, fromPods] = [from('outside0'), from('br0')];
      await call(lab, 'ADD', third, { ports: to(82) });
      expect(await call(lab, 'ADD', pod, { ports: to(80), conf: fromOutside, network: 'a' })).toMatchObject({
        exitCode: 0,
      });
      expect(
        await call(lab, 'ADD', neighbour, { ports: to(81), conf: fromPods, network: 'b' }),
      ).toMatchObject({ exitCode: 0 });
      // Clients that match no conditions reach the one without.
      expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4)).toBe(true);
      await call(lab, 'DEL', pod, { network: 'a' });
      expect(await peerSeen(lab, outside, 'tcp', outside.hostAddress.v4)).toBe(outside.address.v4);
      await call(lab, 'DEL', third);
      expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4)).toBe(false);
      expect(await answers(lab, pod, 'tcp', BRIDGE.v4)).toBe(true);
      const heir = await fakePod(lab, 9);
      const refused = await call(lab, 'ADD', heir, { ports: to(80), conf: fromPods, network: 'c' });
      expect(refused).toMatchObject({ exitCode: 1, error: { code: 100 } });
      expect(refused.error?.msg).toEndWith(`container "${neighbour.id}" of network "b" holds 8080/tcp`);
    });

    test('attachments with the same conditions share rules, which GC removes with the last of them', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      const conf = {
        conditionsV4: ['iifname', 'outside0'],
        conditionsV6: ['ip6 saddr { fd00::1, fd00::2 }'],
      };
      await call(lab, 'ADD', pod, { conf });
      const once = await rulesAndSets(lab);
      await call(lab, 'ADD', neighbour, { conf, ports: [{ hostPort: 22, containerPort: 22 }] });
      await call(lab, 'ADD', neighbour, { conf, ports: [{ hostPort: 23, containerPort: 22 }] });
      expect(await rulesAndSets(lab)).toEqual(once);
      expect(once.filter(name => name.startsWith('conditions6'))).toHaveLength(2);
      await call(lab, 'DEL', pod);
      await gc(lab, [neighbour]);
      expect(await rulesAndSets(lab)).toEqual(once);
      await gc(lab, []);
      expect(await elementsLeft(lab)).toEqual([]);
      expect((await rulesAndSets(lab)).filter(name => /_[0-9a-f]{15}|^conditions/.test(name))).toEqual([]);
    });

    test('CHECK reports missing conditions, and ADD restores them', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      const conf = { conditionsV4: ['iifname', 'outside0'] };
      for (const [command, words] of [
        ['flush chain inet catena_portmap conditions4', 'of chain "conditions4" for "iifname outside0"'],
        ['add rule inet catena_portmap conditions4 accept', undefined],
        ['flush map inet catena_portmap conditional4', 'of "conditional4" is missing'],
        ['flush map inet catena_portmap tally4', 'of "tally4" is missing'],
        ['flush map inet catena_portmap means4', 'of "means4" is missing'],
        ['flush table inet catena_portmap', 'rules of chain "when4_'],
        ['flush ruleset', 'is missing'],
      ] as const) {
        expect(await call(lab, 'ADD', pod, { conf })).toMatchObject({ exitCode: 0 });
        expect(await call(lab, 'CHECK', pod, { conf })).toMatchObject({ exitCode: 0 });
        await load(lab, command);
        const checked = await call(lab, 'CHECK', pod, { conf });
        expect(checked.error?.msg ?? '').toContain(words ?? '');
        if (words) expect(checked.exitCode).toBe(1);
      }
    });

    test('ADD with other conditions, or none, leaves nothing of the earlier ones', async () => {
      const { lab, pod } = await podsOnBridge(createLab);
      await call(lab, 'ADD', pod, { conf: { conditionsV4: ['iifname', 'outside0'] } });
      await call(lab, 'ADD', pod, { conf: { conditionsV4: ['iifname', 'br0'] } });
      expect(await call(lab, 'CHECK', pod, { conf: { conditionsV4: ['iifname', 'br0'] } })).toMatchObject({
        exitCode: 0,
      });
      await call(lab, 'ADD', pod, {});
      expect(await call(lab, 'CHECK', pod, {})).toMatchObject({ exitCode: 0 });
      const left = (await elementsLeft(lab)).filter(name => /conditional|tally|means|_/.test(name));
      expect(left).toEqual([]);
    });

    test('STATUS tests the conditions', async () => {
      const { lab } = await podsOnBridge(createLab);
      const status = (conf: object) =>
        lab.plugin('portmap', { command: 'STATUS', conf: confOf('podnet', conf) });
      expect(await status({ conditionsV4: ['iifname', 'outside0'] })).toMatchObject({ exitCode: 0 });
      expect(await status({ conditionsV4: ['ip saddr here'] })).toMatchObject({ error: { code: 7 } });
      expect(await lab.nft(lab.host, 'list', 'tables')).toEqual([]);
    });
  },
  requires('ip', 'nft'),
);

function whenFrom(family: 'v4' | 'v6', source: string): object {
  return family === 'v4'
    ? { conditionsV4: ['ip', 'saddr', source] }
    : { conditionsV6: [`ip6 saddr ${source}`] };
}

function confOf(network: string, more: object): object {
  return { cniVersion: '1.1.0', name: network, type: 'portmap', ...more };
}

function call(
  lab: Lab,
  command: 'ADD' | 'CHECK' | 'DEL',
  pod: Pod,
  { network = 'podnet', conf = {}, ports = WEB }: Call = {},
): Promise<PluginReply> {
  const runtimeConfig = { portMappings: ports };
  return lab.plugin('portmap', {
    command,
    container: pod,
    conf: confOf(network, command === 'DEL' ? {} : { runtimeConfig, ...conf }),
    ...(command === 'DEL' ? {} : { prevResult: resultOf(pod) }),
  });
}

function gc(lab: Lab, valid: Pod[]): Promise<PluginReply> {
  const attachments = valid.map(({ id }) => ({ containerID: id, ifname: 'eth0' }));
  return lab.plugin('portmap', {
    command: 'GC',
    conf: confOf('podnet', { 'cni.dev/valid-attachments': attachments }),
  });
}

async function load(lab: Lab, ...commands: string[]): Promise<void> {
  const stdin = commands.map(command => `${command}\n`).join('');
  expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0 });
}

/** Names of sets with elements. */
async function elementsLeft(lab: Lab): Promise<string[]> {
  const rows = await lab.nft(lab.host, 'list', 'table', ...TABLE);
  return rows.flatMap(row => row.map ?? row.set ?? []).flatMap(set => (set.elem ? set.name : []));
}

/** Names of sets, and of chains once for each rule. */
async function rulesAndSets(lab: Lab): Promise<string[]> {
  const rows = await lab.nft(lab.host, 'list', 'table', ...TABLE);
  return rows.flatMap(row => row.rule?.chain ?? row.map?.name ?? row.set?.name ?? []).sort();
}
