// Do `catena ls`, `who`, `graph`, `log` and `bundle` show what ip and nft show of a node with pods?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { expectAnswer } from '../helpers/answer.ts';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { follow } from '../helpers/follow.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const POD = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0';
const CAP = {
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
  bandwidth: { ingressRate: 8_000_000, ingressBurst: 400_000 },
};

interface Ground {
  readonly lab: Lab;
  readonly pod: Container;
  run(...args: string[]): Promise<Finished>;
  json(...args: string[]): Promise<ReturnType<typeof JSON.parse>>;
}

/** A node with one pod, and one container that is gone. */
async function onNode(body: (ground: Ground) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    const chain = writeChain(lab, fullChain(lab));
    const [pod, gone] = [await lab.container(), await lab.container()];
    await chain.add(pod, { cap: CAP, args: ['--args', POD] });
    await chain.add(gone);
    await lab.remove(gone);
    const run: Ground['run'] = (...args) =>
      lab.run(lab.host, [CATENA, ...args], {
        env: { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR },
        timeoutMs: 50_000,
      });
    const json: Ground['json'] = async (...args) => {
      const { exitCode, stdout, stderr } = await run(...args, '--json');
      if (exitCode !== 0) throw new Error(`catena ${args.join(' ')} failed with ${exitCode}: ${stderr}`);
      return JSON.parse(stdout);
    };
    await body({ lab, pod, run, json });
  });
}

/** Whole lines. */
function linesOf(text: string): string[] {
  return text.split('\n').slice(0, -1);
}

function withoutAges(table: string): string {
  return table.replace(/ +\d+ s(?= |$)/gm, '');
}

describeRoot('a node', () => {
  test('ls shows what ip shows, and fits the terminal', () =>
    onNode(async ({ lab, pod, run, json }) => {
      const node = expectAnswer('Node', await json('ls'));
      const [one, other] = node.attachments.toSorted(a => (a.containerId === pod.id ? -1 : 1));
      expect(one).toMatchObject({
        network: 'podnet',
        containerId: pod.id,
        podNamespace: 'shop',
        podName: 'web-0',
        state: 'attached',
        netns: pod.path,
        origin: { runner: 'catena' },
        ports: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
        rates: { ingressBits: 8_000_000 },
        policies: ['masquerades traffic to other subnets', 'has net.core.somaxconn = 321'],
        hostDevice: { kind: 'veth', master: 'br0', up: true },
      });
      expect(other?.state).toBe('gone');
      const [inside = {}] = await lab.ip(pod, 'addr', 'show', 'dev', 'eth0');
      expect(one?.device).toMatchObject({ name: 'eth0', mac: inside.address, mtu: inside.mtu });
      const [four, six] = ['inet', 'inet6'].map(family =>
        inside.addr_info.find((row: { family: string; scope: string }) => row.family === family),
      );
      expect(one?.addresses).toEqual([`${four.local}/16`, `${six.local}/64`]);
      expect(one?.device?.addresses).toEqual([`${four.local}/16`, `${six.local}/64`]);
      expect(one?.routes).toContainEqual({ destination: '0.0.0.0/0', gateway: '10.88.0.1' });
      const [peer = {}] = await lab.ip(lab.host, 'link', 'show', 'dev', one?.hostDevice?.name ?? '');
      expect(peer.ifindex).toBe(inside.link_index);
      expect(node.bridges).toMatchObject([{ device: { name: 'br0' }, ports: [peer.ifname] }]);
      expect(node.pools).toContainEqual({ network: 'podnet', range: '10.88.0.0/16', used: 2, size: 65533 });
      expect(node.daemon).toEqual({ state: 'none' });

      const { stdout } = await run('ls', '--filter', 'port=8080');
      expect(stdout).toMatch(
        /^NAME +NETWORK +ADDRESS +PORTS +AGE\nshop\/web-0 +podnet +10\.88\.0\.2,fd88::2 +8080->80 +\d+ s\n$/,
      );
      expect((await run('ls', '--network', 'other')).stdout).toBe('none of 2 attachments matches\n');
      const at80 = async (...args: string[]) => {
        const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, COLUMNS: '80' };
        return (await lab.run(lab.host, [CATENA, 'ls', ...args], { env })).stdout;
      };
      expect(Math.max(...(await at80()).split('\n').map(line => line.length))).toBeLessThanOrEqual(80);
      // What is asked for whole is never cut.
      expect(await at80('--output', 'wide')).toContain(pod.id);
      expect((await run('ls', '--output', 'yaml')).stdout).toContain('podName: web-0');
      const checked = await json('ls', '--check', '--filter', `id=${pod.id}`);
      expect(checked.attachments[0].health).toEqual({ state: 'sound' });
      await lab.ip(pod, 'route', 'delete', 'default');
      const broken = await run('ls', '--check');
      expect([broken.exitCode, broken.stdout]).toEqual([
        1,
        expect.stringMatching(/ gone\n.* broken\n\nshop\/web-0 on podnet: Cannot confirm routes/),
      ]);
      // Who asks for what is broken has asked for CHECK.
      expect(await run('ls', '--filter', 'health=broken', '--output', 'name')).toMatchObject({
        exitCode: 1,
        stdout: 'shop/web-0\n',
      });
    }));

  test('ls --watch prints again what has changed, and ends with a signal', () =>
    onNode(async ({ lab, pod }) => {
      const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
      const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
      const watch = follow(lab.start(lab.host, ['env', ...variables, CATENA, 'ls', '--watch']));
      await until(() => watch.said().includes('shop/web-0'));
      expect(watch.said()).not.toContain('shop/web-1');
      const other = await lab.container();
      const args = POD.replace('web-0', 'web-1');
      await writeChain(lab, fullChain(lab)).add(other, { args: ['--args', args] });
      await until(() => watch.said().includes('shop/web-1'));
      await lab.remove(pod);
      await until(() => /shop\/web-0 .* gone\n/.test(watch.said()));
      // What had not changed was not printed again; only ages may.
      const tables = watch.said().split(/^(?=NAME )/m);
      expect(tables.length).toBeGreaterThan(2);
      for (const [i, table] of tables.entries()) {
        if (i > 0) expect(withoutAges(table)).not.toBe(withoutAges(tables[i - 1] ?? ''));
      }
      expect(await watch.end()).toBe(0);
    }));

  test('who finds the owner by each of its marks, and what is inside of pods', () =>
    onNode(async ({ lab, pod, run, json }) => {
      const [link = {}] = await lab.ip(pod, 'link', 'show', 'dev', 'eth0');
      const [peer = {}] = (await lab.ip(lab.host, 'link', 'show')).filter(
        ({ ifindex }) => ifindex === link.link_index,
      );
      await lab.ip(pod, 'address', 'add', '192.0.2.7/32', 'dev', 'eth0');
      const evidenceOf = async (...query: string[]): Promise<string> => {
        const { owners } = await json('who', ...query);
        const own = owners.filter((one: { attachment?: { containerId: string } }) => {
          return one.attachment?.containerId === pod.id;
        });
        expect([query, own.length]).toEqual([query, 1]);
        return own[0].evidence.join('\n');
      };
      const address = await evidenceOf('10.88.0.2');
      expect(address).toContain('the result of its ADD has 10.88.0.2/16');
      expect(address).toContain(`leases/podnet/10.88.0.2" leases it to container "${pod.id}"`);
      expect(address).toContain(`interface "eth0" in namespace "${pod.path}", with no process`);
      expect(address).toMatch(/element .*10\.88\.0\.2.* in table inet catena_/);
      expect(await evidenceOf('FD88::2')).toContain('fd88::2/64');
      expect(await evidenceOf('10.88.0.2/16')).toBe(address);
      expect(await evidenceOf('192.0.2.7')).toContain('interface "eth0" in namespace');
      expect(await evidenceOf(link.address)).toContain('its interface "eth0" has it');
      expect(await evidenceOf(peer.ifname)).toContain('is the other end of its interface "eth0"');
      expect(await evidenceOf('8080')).toContain('tcp port 8080 of the host leads to its port 80');
      expect(await evidenceOf('shop/web-0')).toContain('named it so');
      expect(await evidenceOf(pod.id.slice(0, -1))).toContain('its container id is');
      const rules = await lab.nft(lab.host, 'list', 'table', 'inet', 'catena_portmap');
      const handle = /"rule":\{[^{}]*?"handle":(\d+)/.exec(JSON.stringify(rules))?.[1] ?? '';
      const shared = await json('who', 'handle', handle);
      expect(JSON.stringify(shared.owners)).toContain(`rule ${handle} of chain`);

      const { stdout } = await run('who', '10.88.0.2');
      expect(stdout).toMatch(/^shop\/web-0\n {2}network {4}podnet, interface eth0\n/);
      expect(stdout).toMatch(/ {2}since {6}\d+ s ago, 20\d\d-/);
      const other = await lab.container();
      await run('add', 'podnet', other.path, '--container-id', 'db');
      expect((await run('who', 'db')).stdout).toContain('its container id is "db"');
      const none = await run('who', '198.51.100.1');
      expect([none.exitCode, none.stdout]).toEqual([1, 'nothing on this node has, or is, "198.51.100.1"\n']);
    }));

  test('log tells what happened, also to containers that are gone, and follows', () =>
    onNode(async ({ lab, pod, run, json }) => {
      const env = { ...directories(lab.tmp), NETCONFPATH: lab.tmp, CNI_PATH: BIN_DIR };
      const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
      const follower = follow(
        lab.start(lab.host, ['env', ...variables, CATENA, 'log', '--follow', '--json']),
      );
      const followed = (): string[] => linesOf(follower.said()).map(line => JSON.parse(line).what);
      // It tells what was before it began, and follows from there.
      await until(() => followed().length === 2);
      await lab.run(lab.host, [CATENA, 'del', 'podnet', pod.path, '--container-id', pod.id, '--args', POD], {
        env,
      });
      fs.appendFileSync(`${lab.tmp}/state/history/events`, '{"time":"cut of');
      fs.writeFileSync(`${lab.tmp}/leases/podnet/10.88.0.99`, 'stranger\r\neth0');
      // The kernel dates files by a coarser clock than events.
      const later = Date.now() / 1000 + 1;
      fs.utimesSync(`${lab.tmp}/leases/podnet/10.88.0.99`, later, later);
      const { items } = await json('log', '--since', '2h');
      expect(items).toMatchObject([
        {
          what: 'ADD',
          network: 'podnet',
          containerId: pod.id,
          ifname: 'eth0',
          podName: 'web-0',
          by: 'command',
          code: 0,
        },
        { what: 'ADD', network: 'podnet', source: 'history' },
        { what: 'DEL', network: 'podnet', containerId: pod.id, podNamespace: 'shop', source: 'history' },
        { what: 'LEASE', containerId: 'stranger', message: '10.88.0.99 was leased', source: 'lease' },
      ]);
      const { stdout } = await run('log', '--container', 'web-0');
      expect(stdout.split('\n').map(line => line.slice(19))).toEqual([
        '  ADD      shop/web-0 eth0 on podnet  [command; history]',
        '  DEL      shop/web-0 eth0 on podnet  [command; history]',
        '',
      ]);
      expect((await run('log', '--network', 'other')).stdout).toStartWith('nothing is on record since 20');
      expect((await run('log', '--since', 'soon')).exitCode).toBe(2);
      await until(() => followed().length > 2);
      expect(await follower.end()).toBe(0);
      expect(followed()).toEqual(['ADD', 'ADD', 'DEL']);
    }));

  test('log tells what a runtime had plugins do without a daemon, a row for each operation', () =>
    onNode(async ({ lab, run }) => {
      const container = await lab.container();
      const conf = { cniVersion: '1.0.0', name: 'other' };
      const ipam = { type: 'host-local', subnet: '10.99.0.0/24', dataDir: `${lab.tmp}/leases` };
      const portMappings = [{ hostPort: 8099, containerPort: 80, protocol: 'tcp' }];
      const list = {
        bridge: { ...conf, type: 'bridge', bridge: 'br9', ipam },
        portmap: { ...conf, type: 'portmap', runtimeConfig: { portMappings } },
      };
      const args = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-9';
      const call = (
        type: keyof typeof list,
        command: 'ADD' | 'CHECK' | 'DEL',
        more: { prevResult?: Row } = {},
      ) => lab.plugin(type, { command, conf: list[type], container, args, ...more });
      const { result: prevResult = {} } = await call('bridge', 'ADD');
      await call('portmap', 'ADD', { prevResult });
      await call('bridge', 'CHECK', { prevResult });
      await call('portmap', 'DEL', { prevResult });
      await call('bridge', 'DEL', { prevResult });
      // What a plugin of another project calls is part of its call.
      const ipamOnly = { ...conf, type: 'bridge', ipam };
      expect((await lab.plugin('host-local', { command: 'DEL', conf: ipamOnly, container })).exitCode).toBe(
        0,
      );
      const { error } = await lab.plugin('bridge', {
        command: 'ADD',
        conf: { ...list.bridge, mtu: -1 },
        container,
      });
      expect(error?.code).toBe(7);
      const { stdout } = await run('log', '--network', 'other');
      expect(linesOf(stdout).map(line => line.slice(21))).toEqual([
        'ADD      shop/web-9 eth0 on other  [runtime, bridge, portmap; history]',
        'DEL      shop/web-9 eth0 on other  [runtime, portmap, bridge; history]',
        expect.stringMatching(/^ADD .* eth0 on other failed \(7\): .*mtu.* {2}\[runtime, bridge; history\]$/),
      ]);
    }));
});
