// Does portmap leave alone what others translate, and the ports of ::1, also on a host that an earlier release set up?

import { describe, expect, test } from 'bun:test';
import { deadline } from '../helpers/deadline.ts';
import { type Lab, type Namespace, useLabs } from '../helpers/netns.ts';
import type { PluginReply } from '../helpers/plugin.ts';
import {
  answers,
  BRIDGE,
  type Pod,
  peerSeen,
  podsOnBridge,
  resultOf,
  setHairpin,
  showBridged,
} from '../helpers/pods.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { startServer } from '../helpers/traffic.ts';

const BACKENDS = ['nftables', 'iptables'] as const;
const SERVICE = { v4: '10.96.0.10', v6: 'fd00:96::10' } as const;
const WEB = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];

describeRoot(
  'portmap and its neighbours',
  () => {
    const createLab = useLabs();

    describe.each(BACKENDS)('backend %s', backend => {
      const kubeProxy = backend === 'nftables' ? kubeProxyInNftables : kubeProxyInIptables;

      test.each(['v4', 'v6'] as const)(
        'a connection that kube-proxy forwards to a pod with mapped ports keeps its source by IP%s',
        async family => {
          const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
          await showBridged(lab, true);
          await startServer(lab, pod, { protocol: 'tcp', port: 80 });
          await kubeProxy(lab, pod);
          expect((await add(lab, pod, backend)).exitCode).toBe(0);
          // The node port and the Service's port are mapped as well: the number alone does not tell who translated.
          expect(
            (await add(lab, pod, backend, {}, [...WEB, { hostPort: 80, containerPort: 80 }])).exitCode,
          ).toBe(0);
          expect(await peerSeen(lab, neighbour, 'tcp', SERVICE[family], 80)).toBe(neighbour[family]);
          expect(await peerSeen(lab, outside, 'tcp', outside.hostAddress[family], 30080)).toBe(
            outside.address[family],
          );
          // What is mapped by the plugin itself is masqueraded for the neighbour as before.
          expect(await peerSeen(lab, neighbour, 'tcp', outside.hostAddress[family])).toBe(BRIDGE[family]);
        },
      );

      test.each(['v4', 'v6'] as const)(
        'masqAll masquerades the plugin’s own connections, not those of a NodePort, by IP%s',
        async family => {
          const { lab, pod, outside } = await podsOnBridge(createLab);
          await startServer(lab, pod, { protocol: 'tcp', port: 80 });
          await kubeProxy(lab, pod);
          expect((await add(lab, pod, backend, { masqAll: true })).exitCode).toBe(0);
          const address = outside.hostAddress[family];
          expect(await peerSeen(lab, outside, 'tcp', address, 30080)).toBe(outside.address[family]);
          expect(await peerSeen(lab, outside, 'tcp', address)).toBe(BRIDGE[family]);
        },
      );

      test('a pod reaches itself by its own mapped port, also where bridged packets pass the packet filter', async () => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        await startServer(lab, pod, { protocol: 'tcp', port: 80 });
        await setHairpin(lab);
        expect((await add(lab, pod, backend)).exitCode).toBe(0);
        for (const shown of [true, false]) {
          await showBridged(lab, shown);
          expect(await peerSeen(lab, pod, 'tcp', outside.hostAddress.v4)).toBe(BRIDGE.v4);
          expect(await peerSeen(lab, pod, 'tcp', outside.hostAddress.v6)).toBe(BRIDGE.v6);
        }
      });

      test('a listener on ::1 is reached though the port is mapped, and without one the connection is refused at once', async () => {
        const { lab, pod, outside } = await podsOnBridge(createLab);
        await startServer(lab, pod, { protocol: 'tcp', port: 80 });
        expect((await add(lab, pod, backend)).exitCode).toBe(0);
        expect(await refusal(lab, lab.host, '::1', 8080)).toBe('ECONNREFUSED');
        await startServer(lab, lab.host, { protocol: 'tcp', port: 8080, address: '::1' });
        expect(await peerSeen(lab, lab.host, 'tcp', '::1')).toBe('::1');
        // Other addresses of the host lead to the pod, from the host as well, and so does 127.0.0.1.
        expect(await answers(lab, lab.host, 'tcp', BRIDGE.v6)).toBe(true);
        expect(await answers(lab, lab.host, 'tcp', '127.0.0.1')).toBe(true);
        expect(await answers(lab, outside, 'tcp', outside.hostAddress.v6)).toBe(true);
      });
    });

    test('ADD replaces the rules of an earlier release, which CHECK names until then, with their place among others', async () => {
      const { lab, pod, neighbour } = await podsOnBridge(createLab);
      await add(lab, pod, 'nftables');
      const own = await rulesWithoutHandles(lab);
      const places = await prioritiesOf(lab);
      await installEarlierRules(lab);
      const earlier = await rulesWithoutHandles(lab);
      expect(earlier).not.toEqual(own);
      expect((await check(lab, pod)).error?.msg).toContain('its rules are those of another release');
      await startServer(lab, lab.host, { protocol: 'tcp', port: 8080, address: '::1' });
      expect(await answers(lab, lab.host, 'tcp', '::1')).toBe(false);
      const other = [{ hostPort: 9090, containerPort: 90, protocol: 'tcp' }];
      expect((await add(lab, neighbour, 'nftables', {}, other)).exitCode).toBe(0);
      expect(await rulesWithoutHandles(lab)).toEqual(own);
      expect(await prioritiesOf(lab)).toEqual(places);
      expect(await answers(lab, lab.host, 'tcp', '::1')).toBe(true);
      for (const [one, ports] of [
        [pod, WEB],
        [neighbour, other],
      ] as const) {
        expect(await check(lab, one, ports)).toMatchObject({ exitCode: 0, stdout: '' });
      }
    });
  },
  requires('nft', 'iptables'),
);

/** Services as kube-proxy's mode nftables has them: chains of their own before all others, no mark for these clients. */
async function kubeProxyInNftables(lab: Lab, pod: Pod): Promise<void> {
  const rules = (['ip', 'ip6'] as const).map(family => {
    const [service, to] = family === 'ip' ? [SERVICE.v4, pod.v4] : [SERVICE.v6, `[${pod.v6}]`];
    const chain = `${family} daddr ${service} tcp dport 80 dnat to ${to}:80; fib daddr type local tcp dport 30080 dnat to ${to}:80;`;
    return `table ${family} kube-proxy {
      chain nat-prerouting { type nat hook prerouting priority -100; ${chain} }
      chain nat-output { type nat hook output priority -100; ${chain} }
    }`;
  });
  const stdin = rules.join('\n');
  expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0, stderr: '' });
}

/** The same as kube-proxy's mode iptables has them, before the plugin's own jumps. */
async function kubeProxyInIptables(lab: Lab, pod: Pod): Promise<void> {
  for (const tool of ['iptables', 'ip6tables']) {
    const [service, to] = tool === 'iptables' ? [SERVICE.v4, pod.v4] : [SERVICE.v6, `[${pod.v6}]`];
    const lead = ['-j', 'DNAT', '--to-destination', `${to}:80`];
    for (const chain of ['PREROUTING', 'OUTPUT']) {
      const rules = [
        ['-d', service, '-p', 'tcp', '--dport', '80', ...lead],
        ['-m', 'addrtype', '--dst-type', 'LOCAL', '-p', 'tcp', '--dport', '30080', ...lead],
      ];
      for (const rule of rules) {
        const argv = [tool, '-t', 'nat', '-A', chain, ...rule];
        expect(await lab.run(lab.host, argv)).toMatchObject({ exitCode: 0 });
      }
    }
  }
}

/** Rewrites what is in the kernel to what the release before made of it; elements stay. */
async function installEarlierRules(lab: Lab): Promise<void> {
  const table = 'inet catena_portmap';
  const { stdout } = await lab.run(lab.host, ['nft', 'list', 'table', ...table.split(' ')]);
  const earlier = stdout
    .replaceAll(/ comment "catena rules, version \d+"/g, '')
    .replaceAll(/\n.*ip6 daddr ::1 return/g, '')
    .replaceAll(/(priority (dst|src)nat) \+ \d+|priority -80/g, (_, named) => named ?? 'priority -100')
    .replaceAll('priority 120', 'priority 100')
    .replaceAll('ct label set 107 ', '')
    .replaceAll('ct label 107', 'ct status & dnat == dnat');
  expect(earlier).not.toContain('ct label');
  const stdin = `delete table ${table}\n${earlier}`;
  expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0, stderr: '' });
}

async function rulesWithoutHandles(lab: Lab): Promise<unknown[]> {
  const rows = await lab.nft(lab.host, 'list', 'table', 'inet', 'catena_portmap');
  return rows.flatMap(({ rule }) => (rule ? [{ ...rule, handle: 0 }] : []));
}

async function prioritiesOf(lab: Lab): Promise<unknown[]> {
  const rows = await lab.nft(lab.host, 'list', 'table', 'inet', 'catena_portmap');
  return rows.flatMap(({ chain }) => (chain ? [[chain.name, chain.prio]] : [])).sort();
}

/** The error of a TCP connection that is not answered, or nothing when it is; a second is no time for "at once". */
async function refusal(lab: Lab, from: Namespace, address: string, port: number): Promise<string> {
  const script = `
    const socket = require('node:net').connect(${port}, '${address}');
    setTimeout(() => { console.log('nothing'); process.exit(0) }, ${deadline(1_000)});
    socket.on('error', error => { console.log(error.code); process.exit(0) });
    socket.on('connect', () => { console.log('connected'); process.exit(0) });`;
  return (await lab.run(from, [process.execPath, '-e', script])).stdout.trim();
}

function add(
  lab: Lab,
  pod: Pod,
  backend: string,
  conf: object = {},
  portMappings: object[] = WEB,
): Promise<PluginReply> {
  return call(lab, 'ADD', pod, { ...conf, backend }, portMappings);
}

function check(lab: Lab, pod: Pod, portMappings: object[] = WEB): Promise<PluginReply> {
  return call(lab, 'CHECK', pod, {}, portMappings);
}

function call(
  lab: Lab,
  command: 'ADD' | 'CHECK',
  pod: Pod,
  more: object,
  portMappings: object[],
): Promise<PluginReply> {
  const runtimeConfig = { portMappings };
  const conf = { cniVersion: LATEST_SPEC_VERSION, name: 'podnet', type: 'portmap', runtimeConfig, ...more };
  return lab.plugin('portmap', { command, conf, container: pod, prevResult: resultOf(pod) });
}
