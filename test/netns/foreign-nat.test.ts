// Does what others have decided about a connection stand, in every mix of packet filters, ours and theirs, and is a published port
// reachable where others drop, and nothing else?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Lab, type Namespace, type Outside, untilUp, useLabs } from '../helpers/netns.ts';
import { answers, FAMILIES, type Pod, peerSeen, podsOnBridge, resultOf } from '../helpers/pods.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { converse, echo, startServer } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

/** `nftables`: no option names a packet filter. */
const OURS = ['nftables', 'iptables'] as const;
type Ours = (typeof OURS)[number];
/** Who was there first. */
const THEIRS = ['iptables', 'iptables-legacy', 'nftables'] as const;
type Theirs = (typeof THEIRS)[number];

/** An address of Services, as kube-proxy has them on a device that carries no traffic. */
const SERVICE = '10.96.0.1';
const TUNNEL = '10.201.0.0/16';
const MAPPING = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
const IPTABLES = { 4: 'iptables', 6: 'ip6tables' } as const;

describeRoot(
  'what others translate, exempt and drop',
  () => {
    const createLab = useLabs();

    describe.each(OURS)('ours: %s', ours => {
      describe.each(THEIRS)('theirs: %s', theirs => {
        test('a port that they forward is theirs, and the others are ours', async () => {
          const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
          await startServer(lab, pod, { protocol: 'tcp', port: 80 });
          await startServer(lab, neighbour, { protocol: 'tcp', port: 81 });
          await forward(lab, theirs, outside, neighbour);
          const ports = [...MAPPING, { hostPort: 8081, containerPort: 80, protocol: 'tcp' }];
          expect(await portmap(lab, 'ADD', pod, ours, ports, theirs)).toMatchObject({ exitCode: 0 });
          expect(await portmap(lab, 'CHECK', pod, ours, ports, theirs)).toMatchObject({ exitCode: 0 });
          expect(await reply(lab, outside, outside.hostAddress.v4, 8080)).toBe(neighbour.v4);
          expect(await reply(lab, outside, outside.hostAddress.v4, 8081)).toBe(pod.v4);
          expect(await portmap(lab, 'DEL', pod, ours, ports, theirs)).toMatchObject({ exitCode: 0 });
          expect(await reply(lab, outside, outside.hostAddress.v4, 8080)).toBe(neighbour.v4);
          expect(await answers(lab, outside, 'tcp', outside.hostAddress.v4, 8081)).toBe(false);
        });

        test.skipIf(!isExempting(theirs))('the address of a Service that they accept stays', async () => {
          const { lab, pod, neighbour, outside } = await podsOnBridge(createLab);
          await startServer(lab, pod, { protocol: 'tcp', port: 80 });
          await lab.ip(lab.host, 'link', 'add', 'kube-ipvs0', 'type', 'bridge');
          await lab.ip(lab.host, 'addr', 'add', `${SERVICE}/32`, 'dev', 'kube-ipvs0');
          await startServer(lab, lab.host, { protocol: 'tcp', port: 8080, address: SERVICE });
          for (const argv of [
            ['-N', 'KUBE-SERVICES'],
            ['-A', 'KUBE-SERVICES', '-d', SERVICE, '-p', 'tcp', '--dport', '8080', '-j', 'ACCEPT'],
            ['-A', 'PREROUTING', '-j', 'KUBE-SERVICES'],
            ['-A', 'OUTPUT', '-j', 'KUBE-SERVICES'],
          ])
            await ok(lab, [theirs, '-t', 'nat', ...argv]);
          expect(await portmap(lab, 'ADD', pod, ours, MAPPING, theirs)).toMatchObject({ exitCode: 0 });
          expect(await portmap(lab, 'CHECK', pod, ours, MAPPING, theirs)).toMatchObject({ exitCode: 0 });
          for (const from of [neighbour, lab.host])
            expect(await reply(lab, from, SERVICE, 8080)).toBe(SERVICE);
          expect(await reply(lab, outside, outside.hostAddress.v4, 8080)).toBe(pod.v4);
        });

        test.skipIf(theirs !== 'nftables' && !isExempting(theirs))(
          'what they exempt from masquerading or translate keeps the source that they gave it',
          async () => {
            const lab = await createLab();
            const outside = await lab.outside();
            const pod = await lab.container();
            await startServer(lab, outside, { protocol: 'tcp', port: 80 });
            if (theirs === 'nftables') {
              await load(
                lab,
                'table ip vpn { chain post { type nat hook postrouting priority 100;',
                `ip daddr ${TUNNEL} snat to 10.201.0.77; } }`,
              );
              await lab.ip(outside, 'route', 'add', '10.201.0.77', 'via', outside.hostAddress.v4);
            } else {
              const rule = ['-s', '10.22.0.0/24', '-d', TUNNEL, '-j', 'ACCEPT'];
              await ok(lab, [theirs, '-t', 'nat', '-A', 'POSTROUTING', ...rule]);
            }
            const added = await bridge(lab, 'ADD', pod, ours, theirs);
            expect(added).toMatchObject({ exitCode: 0 });
            const prevResult = added.result;
            expect(await bridge(lab, 'CHECK', pod, ours, theirs, prevResult)).toMatchObject({ exitCode: 0 });
            const seen = theirs === 'nftables' ? '10.201.0.77' : '10.22.0.2';
            expect(await peerSeen(lab, pod, 'tcp', outside.address.v4, 80)).toBe(seen);
            // Everything else is masqueraded.
            await lab.ip(outside, 'addr', 'add', '192.0.2.9/32', 'dev', 'lo');
            await lab.ip(lab.host, 'route', 'add', '192.0.2.9', 'via', outside.address.v4);
            expect(await peerSeen(lab, pod, 'tcp', '192.0.2.9', 80)).toBe(outside.hostAddress.v4);
            expect(await bridge(lab, 'DEL', pod, ours, theirs, prevResult)).toMatchObject({ exitCode: 0 });
          },
        );

        test('a published port passes their policy DROP, and nothing else does', async () => {
          for (const links of [['firewall'], []]) {
            // The rules of iptables carry no label: there it is firewall that accepts.
            if (links.length === 0 && (ours === 'iptables' || theirs === 'nftables')) continue;
            const { lab, pod, outside } = await podsOnBridge(createLab);
            for (const port of [80, 81]) await startServer(lab, pod, { protocol: 'tcp', port });
            if (theirs === 'nftables') {
              // No rule of ours can accept what another table drops; firewalld's accepts what was translated.
              const rules = 'ct status dnat accept; ct state established,related accept;';
              await load(
                lab,
                `table inet fw { chain pass { type filter hook forward priority 10; policy drop; ${rules} } }`,
              );
            } else
              for (const tool of Object.values(IPTABLES))
                await ok(lab, [theirs.replace('iptables', tool), '-P', 'FORWARD', 'DROP']);
            expect(await portmap(lab, 'ADD', pod, ours, MAPPING, theirs)).toMatchObject({ exitCode: 0 });
            for (const type of links) {
              const conf = { cniVersion: '1.1.0', name: 'podnet', type };
              const call = { command: 'ADD', container: pod, conf, prevResult: resultOf(pod) };
              expect(await lab.plugin(type, { ...call, env: envOf(lab, theirs) })).toMatchObject({
                exitCode: 0,
              });
            }
            for (const family of FAMILIES) {
              expect(await reply(lab, outside, outside.hostAddress[family], 8080)).toBe(pod[family]);
              for (const port of [80, 81])
                expect(await answers(lab, outside, 'tcp', pod[family], port)).toBe(false);
            }
          }
        });
      });
    });

    test('packets of no connection do not leave with the address of a masqueraded pod', async () => {
      const lab = await createLab();
      const outside = await lab.outside();
      const pod = await lab.container();
      expect(await bridge(lab, 'ADD', pod, 'nftables', 'nftables')).toMatchObject({ exitCode: 0 });
      // Once it is forgotten, what continues a connection belongs to none.
      await lab.sysctl(lab.host, 'net/netfilter/nf_conntrack_tcp_loose', 0);
      await lab.sysctl(lab.host, 'net/netfilter/nf_conntrack_tcp_timeout_established', 1);
      const count = (ns: Namespace) =>
        load(
          { ...lab, host: ns },
          'table ip seen { counter fins { }',
          'chain pre { type filter hook prerouting priority -310;',
          'ip saddr 10.22.0.2 tcp flags & fin == fin counter name fins } }',
        );
      await count(lab.host);
      await count(outside);
      const talk = await converse(lab, {
        from: pod,
        to: outside,
        listen: 80,
        address: outside.address.v4,
        port: 80,
      });
      await Bun.sleep(1_100);
      await talk.end();
      await until(async () => (await fins(lab, lab.host)) > 0);
      expect(await fins(lab, outside)).toBe(0);
    });
  },
  requires('nft', 'iptables', 'iptables-legacy', 'ip6tables'),
);

/** An ACCEPT in a table of nf_tables ends that table alone, as its author knows. */
function isExempting(theirs: Theirs): boolean {
  return theirs !== 'nftables';
}

/** The node's iptables is theirs: kube-proxy and others choose as the node does. */
function envOf(lab: Lab, theirs: Theirs): Record<string, string> {
  if (theirs !== 'iptables-legacy') return {};
  const dir = `${lab.tmp}/legacy`;
  fs.mkdirSync(dir, { recursive: true });
  for (const tool of Object.values(IPTABLES)) {
    for (const name of [tool, `${tool}-restore`, `${tool}-save`]) {
      if (!fs.existsSync(`${dir}/${name}`))
        fs.symlinkSync('/usr/sbin/xtables-legacy-multi', `${dir}/${name}`);
    }
  }
  return { PATH: `${dir}:${process.env.PATH}` };
}

/** Port 8080 of the node's address leads to port 81 of the neighbour. */
async function forward(lab: Lab, theirs: Theirs, outside: Outside, neighbour: Pod): Promise<void> {
  const address = outside.hostAddress.v4;
  if (theirs === 'nftables') {
    const rule = `ip daddr ${address} tcp dport 8080 dnat to ${neighbour.v4}:81`;
    await load(lab, `table ip kube-proxy { chain pre { type nat hook prerouting priority -100; ${rule}; } }`);
    return;
  }
  const rule = ['-d', address, '-p', 'tcp', '--dport', '8080', '-j', 'DNAT', '--to', `${neighbour.v4}:81`];
  await ok(lab, [theirs, '-t', 'nat', '-A', 'PREROUTING', ...rule]);
}

/** The address at which the connection arrived. */
async function reply(lab: Lab, from: Namespace, address: string, port: number): Promise<string | undefined> {
  return (await echo(lab, from, { protocol: 'tcp', address, port }))?.local;
}

function portmap(
  lab: Lab,
  command: 'ADD' | 'CHECK' | 'DEL',
  pod: Pod,
  ours: Ours,
  portMappings: object[],
  theirs: Theirs,
) {
  const conf = {
    cniVersion: '1.1.0',
    name: 'podnet',
    type: 'portmap',
    runtimeConfig: { portMappings },
    ...(ours === 'nftables' ? {} : { backend: ours }),
  };
  const env = envOf(lab, theirs);
  return lab.plugin('portmap', { command, conf, container: pod, prevResult: resultOf(pod), env });
}

async function bridge(
  lab: Lab,
  command: 'ADD' | 'CHECK' | 'DEL',
  container: Parameters<Lab['plugin']>[1]['container'],
  ours: Ours,
  theirs: Theirs,
  prevResult?: object,
) {
  const conf = {
    cniVersion: '1.1.0',
    name: 'vpnnet',
    type: 'bridge',
    bridge: 'cni0',
    isDefaultGateway: true,
    ipMasq: true,
    ...(ours === 'nftables' ? {} : { ipMasqBackend: ours }),
    ipam: { type: 'host-local', dataDir: lab.tmp, subnet: '10.22.0.0/24' },
  };
  const reply = await lab.plugin('bridge', {
    command,
    conf,
    ...(container ? { container } : {}),
    ...(prevResult ? { prevResult } : {}),
    env: envOf(lab, theirs),
  });
  if (command === 'ADD') await untilUp(lab.host, 'cni0');
  return reply;
}

async function fins(lab: Lab, ns: Namespace): Promise<number> {
  const rows = await lab.nft(ns, 'list', 'counter', 'ip', 'seen', 'fins');
  return rows.flatMap(({ counter }) => (counter ? [counter.packets] : []))[0] ?? 0;
}

async function ok(lab: Lab, argv: string[]): Promise<void> {
  expect(await lab.run(lab.host, argv)).toMatchObject({ exitCode: 0 });
}

async function load(lab: Lab, ...lines: string[]): Promise<void> {
  // nft wants the end of a line before each brace that closes.
  const stdin = `${lines.join('\n').replaceAll('{ ', '{\n').replaceAll(' }', '\n}')}\n`;
  expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0, stderr: '' });
}
