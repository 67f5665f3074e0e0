// Does STATUS of bridge and ptp ask their IPAM plugin, which devices of the host does a repair touch, and how often do plugins start a program of iptables?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { TEST_PATH } from '../helpers/command.ts';
import { connect } from '../helpers/connected-pod.ts';
import { type Lab, type Row, withHost } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

const MAIN_PLUGINS = ['bridge', 'ptp'];

function confOf(lab: Lab, type: string, more: Row = {}): Row {
  // Room for one container beside the gateway.
  const ipam = { type: 'host-local', subnet: '10.88.0.0/30', dataDir: `${lab.tmp}/leases` };
  return { cniVersion: '1.1.0', name: 'podnet', type, ipam, ...more };
}

describeRoot('main plugins and their IPAM plugin', () => {
  test.each(MAIN_PLUGINS)('[1.1.0] STATUS of %s reports a pool without free addresses', async type => {
    await withHost(async lab => {
      const [container, conf] = [await lab.container(), confOf(lab, type)];
      const status = () => lab.plugin(type, { command: 'STATUS', conf });
      expect(await status()).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.plugin(type, { command: 'ADD', conf, container })).toMatchObject({ exitCode: 0 });
      expect((await status()).error).toMatchObject({ code: 50, msg: expect.stringContaining('10.88.0.2') });
      expect(await lab.plugin(type, { command: 'DEL', conf, container })).toMatchObject({ exitCode: 0 });
      expect(await status()).toMatchObject({ exitCode: 0, stdout: '' });
    });
  });

  test.each([
    ['table', 2 ** 32, 'not 0 to 4294967295'],
    ['priority', -1, 'not 0 to 4294967295'],
    ['scope', 256, 'not 0 to 255'],
  ])('[1.1.0] a route whose %s is %d, which the kernel would cut, is refused', async (member, value, why) => {
    await withHost(async lab => {
      const container = await lab.container();
      await lab.outside();
      for (const type of [...MAIN_PLUGINS, 'macvlan']) {
        const conf = confOf(lab, type, type === 'macvlan' ? { master: 'outside0' } : {});
        conf.ipam.routes = [{ dst: '192.0.2.0/24', [member]: value }];
        const { error } = await lab.plugin(type, { command: 'ADD', conf, container });
        expect(error).toMatchObject({ code: 7, msg: expect.stringContaining(why) });
        expect(await lab.ip(container, 'link')).toMatchObject([{ ifname: 'lo' }]);
        expect(fs.readdirSync(`${lab.tmp}/leases/podnet`)).not.toContain('10.88.0.2');
      }
    });
  });
});

describeRoot('main plugins and an interface that the container made itself', () => {
  test.each([{ type: 'bridge', isGateway: true }, { type: 'ptp' }])(
    '[1.1.0] repair of $type leaves the device alone that has the index of its other end on the host',
    async ({ type, ...more }) => {
      await withHost(async lab => {
        const container = await lab.container();
        await lab.outside();
        const conf = confOf(lab, type, more);
        const { result } = await lab.plugin(type, { command: 'ADD', conf, container });
        const { mac } = result.interfaces.find(({ sandbox }: Row) => sandbox);
        const own = async () => [
          await lab.ip(lab.host, 'addr', 'show', 'outside0'),
          await lab.ip(lab.host, 'route', 'show', 'dev', 'outside0'),
        ];
        const before = await own();
        await lab.batch(
          container,
          'link delete eth0',
          `link add other0 index ${before[0]?.[0]?.ifindex} type veth peer name eth0 address ${mac}`,
          'link set other0 up',
          'link set eth0 up',
        );
        const repaired = await lab.plugin(type, {
          command: 'CHECK',
          conf: { ...conf, prevResult: result },
          container,
          env: { CATENA_REPAIR: '1' },
        });
        expect(repaired.error?.msg).toContain('only DEL and ADD can recreate interface "eth0"');
        expect(await own()).toEqual(before);
      });
    },
  );

  test.each(MAIN_PLUGINS)('[1.1.0] DEL of %s deletes its pair, whatever has the name now', async type => {
    await withHost(async lab => {
      const [container, conf] = [await lab.container(), confOf(lab, type)];
      const { result: prevResult } = await lab.plugin(type, { command: 'ADD', conf, container });
      await lab.batch(
        container,
        'link set eth0 down',
        'link set eth0 name other0',
        'link set other0 up',
        'link add eth0 type veth peer name other1',
      );
      const del = await lab.plugin(type, { command: 'DEL', conf: { ...conf, prevResult }, container });
      expect(del).toMatchObject({ exitCode: 0 });
      expect(await lab.ip(container, 'link')).toMatchObject([{ ifname: 'lo' }]);
    });
  });
});

const PROGRAMS = ['iptables', 'ip6tables'].flatMap(family =>
  ['', '-restore', '-save'].map(end => family + end),
);

const ONE_EACH = { 'iptables-restore': 1, 'ip6tables-restore': 1 };

/** A search path on which every program of iptables notes that it was started. */
function counting(lab: Lab): { PATH: string } {
  const dir = `${lab.tmp}/bin`;
  fs.mkdirSync(`${dir}/nft`, { recursive: true });
  for (const name of PROGRAMS) {
    const real = Bun.which(name, { PATH: TEST_PATH });
    const script = ['#!/bin/sh', `echo ${name} >> ${lab.tmp}/started`, `exec ${real} "$@"`, ''].join('\n');
    // Plugins look at the name of the file behind a program to see which packet filter it changes.
    fs.writeFileSync(`${dir}/nft/${name}-nft`, script, { mode: 0o755 });
    fs.symlinkSync(`nft/${name}-nft`, `${dir}/${name}`);
  }
  return { PATH: `${dir}:${TEST_PATH}` };
}

/** Which programs were started since the last call, and how often. */
function startedSince(lab: Lab): Record<string, number> {
  const file = `${lab.tmp}/started`;
  const names = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').trim().split('\n') : [];
  fs.rmSync(file, { force: true });
  const counts: Record<string, number> = {};
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

describeRoot(
  'programs of iptables',
  () => {
    const ranges = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];

    test.each(MAIN_PLUGINS)('[1.0.0] %s starts at most one program for each family and verb', async type => {
      await withHost(async lab => {
        const [container, env] = [await lab.container(), counting(lab)];
        const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` };
        const masquerade = { ipMasq: true, ipMasqBackend: 'iptables' };
        const conf = confOf(lab, type, { cniVersion: '1.0.0', ipam, ...masquerade });
        const call = async (command: string): Promise<Record<string, number>> => {
          expect(await lab.plugin(type, { command, conf, container, env })).toMatchObject({ exitCode: 0 });
          return startedSince(lab);
        };
        expect(await call('ADD')).toEqual(ONE_EACH);
        // What nf_tables holds goes without a program.
        expect([{}, ONE_EACH]).toContainEqual(await call('DEL'));
      });
    });

    test('[1.0.0] portmap starts at most one program for each family and verb', async () => {
      await withHost(async lab => {
        const [{ container, prevResult }, env] = [await connect(lab), counting(lab)];
        const portMappings = [80, 81, 82].map(containerPort => ({
          hostPort: 8000 + containerPort,
          containerPort,
        }));
        const ips = [...prevResult.ips, { address: 'fd77:1::2/64', interface: 1 }];
        const conf = { cniVersion: '1.0.0', name: 'podnet', type: 'portmap', backend: 'iptables' };
        const more = { conf: { ...conf, runtimeConfig: { portMappings } }, container, env };
        const added = await lab.plugin('portmap', {
          ...more,
          command: 'ADD',
          prevResult: { ...prevResult, ips },
        });
        expect(added).toMatchObject({ exitCode: 0 });
        expect(startedSince(lab)).toEqual(ONE_EACH);
        expect(await lab.plugin('portmap', { ...more, command: 'DEL' })).toMatchObject({ exitCode: 0 });
        expect([{}, ONE_EACH]).toContainEqual(startedSince(lab));
      });
    });
  },
  requires(...PROGRAMS),
);
