// Does a DEL or CHECK that comes late leave the container alone whose namespace is at the path by then?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { hostEndName } from '../../src/cni/attachment.ts';
import { CATENA } from '../helpers/catena.ts';
import { writeChain } from '../helpers/chain.ts';
import { runOk } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { filesBelow } from '../helpers/journal.ts';
import { lineReader, within } from '../helpers/lines.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, copyPlugins, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { binWith } from '../helpers/script.ts';
import {
  describeNeeding,
  describeRoot,
  requires,
  requiresLinkKind,
  requiresReference,
  requiresRoot,
  testNeeding,
} from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

setDefaultTimeout(deadline(60_000));

const PORTS = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };

/** A chain with every plugin that works on the container's interface or namespace by name. */
function chainOf(lab: Lab, main: Row): Row[] {
  return [
    {
      ...main,
      ipMasq: true,
      ipam: { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` },
    },
    { type: 'tuning', mtu: 1400, sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` },
    { type: 'bandwidth', ingressRate: 8e6, ingressBurst: 8e6, egressRate: 8e6, egressBurst: 8e6 },
    { type: 'portmap', runtimeConfig: PORTS, snat: false },
    { type: 'firewall' },
    { type: 'sbr' },
    { type: 'loopback' },
  ];
}

const BRIDGE = { type: 'bridge', bridge: 'br0', isGateway: true };
const PTP = { type: 'ptp' };

/** Calls the plugins one by one, as a runtime without a journal does. */
function caller(
  lab: Lab,
  cniVersion: string,
  plugins: readonly Row[],
  binDirs: Readonly<Record<string, string>> = {},
) {
  const call = (command: string, container: Container, plugin: Row, prevResult?: Row, env: Row = {}) =>
    lab.plugin(plugin.type, {
      command,
      conf: { ...plugin, cniVersion, name: 'podnet' },
      container,
      env,
      ...(binDirs[plugin.type] ? { binDir: binDirs[plugin.type] as string, cniPath: REFERENCE_BIN_DIR } : {}),
      ...(prevResult ? { prevResult } : {}),
    });
  return {
    call,
    async add(container: Container): Promise<Row> {
      let result: Row | undefined;
      for (const plugin of plugins) {
        const reply = await call('ADD', container, plugin, result);
        if (reply.exitCode !== 0) throw new Error(`ADD of ${plugin.type} failed: ${reply.stdout}`);
        result = reply.result;
      }
      return result as Row;
    },
    async del(container: Container, prevResult: Row | undefined): Promise<string> {
      let warnings = '';
      for (const plugin of plugins.toReversed()) {
        const { exitCode, stdout, stderr } = await call('DEL', container, plugin, prevResult);
        expect({ plugin: plugin.type, exitCode, stdout }).toEqual({
          plugin: plugin.type,
          exitCode: 0,
          stdout: '',
        });
        warnings += stderr;
      }
      return warnings;
    },
  };
}

/** The namespace goes, and another container gets the path. */
async function replace(lab: Lab, container: Container, id: string): Promise<Container> {
  await runOk(['ip', 'netns', 'delete', container.name]);
  await runOk(['ip', 'netns', 'add', container.name]);
  expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
  return { ...container, id };
}

/**
 * The same, as if the kernel had given the new namespace the inode of the old one. It does so sooner or later, but only in its
 * own time, so the test writes the new inode where the old one is on record. All else there is the old namespace's.
 */
async function replaceInPlace(lab: Lab, container: Container, id: string): Promise<Container> {
  const identity = () => {
    const { dev, ino } = fs.statSync(container.path);
    return `${dev}:${ino}`;
  };
  const before = identity();
  const next = await replace(lab, container, id);
  const { CATENA_STATE_DIR = '' } = directories(lab.tmp);
  const records = filesBelow(CATENA_STATE_DIR).map(file => path.join(CATENA_STATE_DIR, file));
  // The mark of an unfinished record is a link to it.
  const named = records.filter(
    file => fs.lstatSync(file).isFile() && fs.readFileSync(file, 'utf8').includes(`"${before}"`),
  );
  expect(named).toHaveLength(1);
  for (const file of named) {
    const text = fs.readFileSync(file, 'utf8').replaceAll(`"${before}"`, `"${identity()}"`);
    fs.writeFileSync(file, text);
  }
  return next;
}

/** What a container has in its namespace, and what the host has for it. */
async function stateOf(lab: Lab, container: Container) {
  const inside = await lab.dump(container);
  const somaxconn = await lab.sysctl(container, 'net/core/somaxconn');
  const [eth0] = await lab.ip(container, 'link', 'show', 'eth0');
  const onHost = (await lab.ip(lab.host, 'link')).find(({ ifindex }) => ifindex === eth0?.link_index);
  const name = onHost?.ifname ?? 'lo';
  const qdiscs = await lab.tc(lab.host, 'qdisc', 'show', 'dev', name);
  const leases = leasesOf(lab).filter(([, text]) => text.includes(container.id));
  const elements = await elementsOf(lab, container);
  return {
    inside,
    somaxconn,
    name,
    qdiscs: qdiscs.map(({ kind, parent, options }) => ({ kind, parent, options })),
    leases,
    elements,
  };
}

/** What the packet filter of the host has under the name of the container. */
async function elementsOf(lab: Lab, { id }: Container): Promise<string[]> {
  const { stdout } = await lab.run(lab.host, ['nft', 'list', 'ruleset']);
  const elements = stdout.split(/[{},\n]/).filter(one => one.includes(`/${id}/`));
  return elements.map(one => one.trim()).sort();
}

function leasesOf(lab: Lab): [string, string][] {
  const dir = `${lab.tmp}/leases/podnet`;
  const names = fs.readdirSync(dir).filter(name => /^[\d.]+$/.test(name));
  return names.map(name => [name, fs.readFileSync(`${dir}/${name}`, 'utf8')]);
}

describeRoot(
  'a DEL that comes when another container has the path',
  () => {
    test.each([
      ['bridge', '1.1.0', BRIDGE],
      ['bridge, without a prevResult', '0.3.1', BRIDGE],
      ['ptp', '1.1.0', PTP],
    ])(
      '%s: touches nothing of that one, and gives back what its own container had',
      async (_what, cniVersion, main) => {
        await withHost(async lab => {
          const first = { ...(await lab.container()), id: 'first' };
          // 0.3.1 is older than firewall.
          const plugins = chainOf(lab, main).filter(
            ({ type }) => cniVersion !== '0.3.1' || type !== 'firewall',
          );
          const { add, del } = caller(lab, cniVersion, plugins);
          const result = await add(first);
          const second = await replace(lab, first, 'second');
          // The port is the first one's until its DEL.
          const others = plugins.filter(({ type }) => type !== 'portmap');
          await caller(lab, cniVersion, others).add(second);
          const before = await stateOf(lab, second);
          expect(before.somaxconn).toBe('321');
          expect(before.qdiscs.map(({ kind }) => kind)).toContain('tbf');

          const warnings = await del(first, cniVersion === '0.3.1' ? undefined : result);
          expect(warnings).toContain('belongs to container \\"second\\"');
          expect(await stateOf(lab, second)).toEqual(before);
          expect(leasesOf(lab).map(([, text]) => text)).toEqual(['second\r\neth0']);
          const left = await stateOf(lab, { ...first, id: 'first' });
          expect(left.elements).toEqual([]);
          expect(
            (await lab.ip(lab.host, 'link', 'show', 'type', 'ifb')).map(({ ifalias }) => ifalias),
          ).toEqual(['catena:podnet/second/eth0']);
        });
      },
    );

    testNeeding(
      'pairs that the reference made carry no name: what the result tells of them shows whose they are',
      async () => {
        await withHost(async lab => {
          const first = { ...(await lab.container()), id: 'first' };
          const plugins = chainOf(lab, BRIDGE).filter(({ type }) => type !== 'portmap');
          // The masquerading of Debian's bridge wants iptables, which is not what this is about.
          const [main = {}, ...others] = plugins;
          const chain = [{ ...main, ipMasq: false }, ...others];
          const { add } = caller(lab, '1.0.0', chain, { bridge: REFERENCE_BIN_DIR });
          const result = await add(first);
          const second = await replace(lab, first, 'second');
          await add(second);
          const before = await stateOf(lab, second);
          expect((await lab.ip(lab.host, 'link', 'show', before.name))[0]?.ifalias).toBeUndefined();

          // The reference has already been replaced by ours. Loopback has nothing to go by but the rest of its list.
          const warnings = await caller(lab, '1.0.0', chain).del(first, result);
          expect(warnings).toContain('is not the one in the result of its ADD');
          expect(await stateOf(lab, second)).toEqual(before);
          expect(leasesOf(lab).map(([, text]) => text)).toEqual(['second\r\neth0']);
        });
      },
      requiresReference('bridge', 'host-local'),
    );

    test('CHECK, also with repair, refuses to work on that one', async () => {
      await withHost(async lab => {
        const first = { ...(await lab.container()), id: 'first' };
        const plugins = chainOf(lab, BRIDGE).filter(({ type }) => type !== 'portmap' && type !== 'firewall');
        const { add, call } = caller(lab, '1.1.0', plugins);
        const result = await add(first);
        const second = await replace(lab, first, 'second');
        await add(second);
        await lab.sysctl(second, 'net/core/somaxconn', 77);
        await lab.ip(second, 'link', 'set', 'lo', 'down');
        const before = await stateOf(lab, second);
        for (const plugin of plugins.filter(({ type }) => type !== 'bridge')) {
          const { error } = await call('CHECK', first, plugin, result, { CATENA_REPAIR: '1' });
          expect({ plugin: plugin.type, code: error?.code }).toEqual({ plugin: plugin.type, code: 8 });
          expect(error?.msg).toContain('belongs to container "second"');
        }
        expect(await stateOf(lab, second)).toEqual(before);
      });
    });

    test('another container that comes while the plugins of a DEL run keeps its limits and rules', async () => {
      await withHost(async lab => {
        const first = { ...(await lab.container()), id: 'first' };
        const second = { ...first, id: 'second' };
        const wanted = ['bridge', 'bandwidth', 'sbr'];
        const plugins = chainOf(lab, BRIDGE).filter(({ type }) => wanted.includes(type));
        // Called first, it says that the others are about to be called.
        const begun = `${lab.tmp}/begun`;
        const binDir = binWith(
          lab,
          'marker',
          `[ "$CNI_COMMAND" = DEL ] && : > ${begun}; echo '{"cniVersion":"1.0.0"}'`,
        );
        const list = { cniVersion: '1.0.0', name: 'podnet', plugins: [...plugins, { type: 'marker' }] };
        const chain = writeChain(lab, list);
        await chain.add(first, { binDir });

        // sbr takes its turn at the container, here after the test.
        const lock = `${lab.tmp}/run/container-${fs.statSync(first.path).ino}.lock`;
        const held = ['sh', '-c', 'echo held; exec sleep 60'];
        const holder = lab.start(lab.host, ['flock', '--no-fork', lock, ...held]);
        await within(deadline(20_000), 'the lock', lineReader(holder.stdout)());
        const deleted = chain.run('del', first, { binDir });
        await until(() => fs.existsSync(begun));
        await Bun.sleep(300);
        await lab.ip(first, 'link', 'delete', 'eth0');
        await caller(
          lab,
          '1.0.0',
          plugins.filter(({ type }) => type !== 'sbr'),
        ).add(second);
        const before = await stateOf(lab, second);
        expect(before.qdiscs.map(({ kind }) => kind)).toContain('tbf');
        holder.kill();
        expect(await deleted).toMatchObject({ exitCode: 0 });
        expect(await stateOf(lab, second)).toEqual(before);
      });
    });

    test('the own interface is deleted, also where its container has given it another hardware address', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const { add, del } = caller(lab, '1.1.0', chainOf(lab, BRIDGE));
        const result = await add(container);
        await lab.ip(container, 'link', 'set', 'eth0', 'address', '0a:00:00:00:00:01');
        expect(await del(container, result)).toBe('');
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
        expect(await lab.sysctl(container, 'net/core/somaxconn')).not.toBe('321');
        expect(leasesOf(lab)).toEqual([]);
      });
    });

    test("a path that leads to the host's own namespace counts as gone: all that is elsewhere is given back", async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const { add, call } = caller(lab, '1.1.0', chainOf(lab, BRIDGE));
        const result = await add(container);
        await lab.ip(lab.host, 'link', 'add', 'eth0', 'type', 'veth', 'peer', 'eth1');
        await runOk(['ip', 'netns', 'delete', container.name]);
        const before = await lab.ip(lab.host, 'link', 'show', 'eth0');
        // The process whose namespace it was has ended, and one of the host has its number.
        const reused = { ...container, path: lab.host.path };
        for (const plugin of chainOf(lab, BRIDGE).toReversed()) {
          const { exitCode, stdout, stderr } = await call('DEL', reused, plugin, result);
          expect({ plugin: plugin.type, exitCode, stdout }).toEqual({
            plugin: plugin.type,
            exitCode: 0,
            stdout: '',
          });
          expect(stderr).toContain('it is the one this plugin runs in; treating it as deleted');
        }
        expect(await lab.ip(lab.host, 'link', 'show', 'eth0')).toEqual(before);
        expect((await lab.ip(lab.host, 'link', 'show', 'lo'))[0]?.flags).toContain('UP');
        expect(leasesOf(lab)).toEqual([]);
        expect(await elementsOf(lab, container)).toEqual([]);
        await runOk(['ip', 'netns', 'add', container.name]);
      });
    });
  },
  requiresLinkKind('ifb'),
);

describeRoot(
  'the journal',
  () => {
    test.each([
      ['ours', BIN_DIR],
      ['of the reference, which look at nothing', REFERENCE_BIN_DIR],
    ])(
      'never hands a namespace to plugins (%s) that has the path and the inode of its own',
      async (_whose, dir) => {
        await withHost(async lab => {
          const bin = `${lab.tmp}/bin`;
          fs.mkdirSync(bin);
          copyPlugins(['bridge', 'host-local'], bin, dir);
          // A plugin whose DEL fails until it is told otherwise.
          const may = `${lab.tmp}/may`;
          const script = [
            '#!/bin/sh',
            `[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0"}' && exit 0`,
            `[ "$CNI_COMMAND" = CHECK ] || [ -e ${may} ] && exit 0`,
            `echo '{"cniVersion":"1.0.0","code":999,"msg":"not yet"}'; exit 1`,
          ].join('\n');
          fs.writeFileSync(`${bin}/stubborn`, script, { mode: 0o755 });
          const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
          const list = {
            cniVersion: '1.0.0',
            name: 'podnet',
            plugins: [{ type: 'stubborn' }, { ...BRIDGE, ipam }],
          };
          fs.mkdirSync(`${lab.tmp}/net.d`);
          fs.writeFileSync(`${lab.tmp}/net.d/10-podnet.conflist`, JSON.stringify(list));
          const catena = (...argv: string[]) =>
            lab.run(lab.host, [CATENA, ...argv], {
              env: { ...directories(lab.tmp), NETCONFPATH: `${lab.tmp}/net.d`, CNI_PATH: bin },
            });

          const first = await lab.container();
          const added = await catena('add', 'podnet', first.path, '--container-id', 'first');
          expect(added).toMatchObject({ exitCode: 0 });
          const failed = await catena('del', 'podnet', first.path, '--container-id', 'first');
          expect(failed.stderr).toContain('not yet');
          const second = await replaceInPlace(lab, first, 'second');
          expect(await catena('add', 'podnet', second.path, '--container-id', 'second')).toMatchObject({
            exitCode: 0,
          });
          const before = await lab.dump(second);
          fs.writeFileSync(may, '');

          const repaired = await catena('repair', '--json');
          expect(JSON.parse(repaired.stdout).recovered).toMatchObject([{ containerId: 'first' }]);
          expect(await lab.dump(second)).toEqual(before);
          expect(leasesOf(lab).map(([, text]) => text)).toEqual(['second\r\neth0']);
          expect(await catena('check', 'podnet', second.path, '--container-id', 'first')).toMatchObject({
            exitCode: 1,
          });
        });
      },
    );
  },
  requiresReference('bridge', 'host-local'),
);

describeRoot('what an ADD left that was killed before the interface had its alias', () => {
  test('is removed by DEL, also where another container has an interface', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'bridge', bridge: 'br0' };
      expect(await lab.plugin('bridge', { command: 'ADD', conf, container })).toMatchObject({ exitCode: 0 });
      const killed = { ...container, id: 'killed' };
      const pair = (name: string, ifname: string) =>
        lab.ip(
          lab.host,
          ...['link', 'add', name, 'type', 'veth', 'peer', 'name', ifname, 'netns', container.name],
        );
      await pair(hostEndName({ network: 'podnet', containerId: 'killed', ifname: 'eth1' }), 'eth1');
      await pair('veth0000', 'eth2');
      for (const CNI_IFNAME of ['eth1', 'eth2']) {
        const deleted = await lab.plugin('bridge', {
          ...{ command: 'DEL', conf, container: killed, env: { CNI_IFNAME } },
        });
        expect(deleted).toMatchObject({ exitCode: 0 });
      }
      // Nothing tells which attachment the other one belongs to.
      const left = (await lab.ip(container, 'link')).map(({ ifname }) => ifname);
      expect(left.sort()).toEqual(['eth0', 'eth2', 'lo']);
    });
  });
});

describeRoot('a late DEL after the loss of the run directory', () => {
  // Such a device has its alias in the container, which can forge one: it counts for an attachment that exists.
  test.each([{ type: 'macvlan', master: 'outside0' }, { type: 'tap' }])(
    'leaves the device of another container alone: $type',
    async plugin => {
      await withHost(async lab => {
        await lab.outside();
        const conf = { cniVersion: '1.1.0', name: 'podnet', ...plugin };
        const holder = await lab.container();
        const chain = writeChain(lab, { cniVersion: '1.1.0', name: 'podnet', plugins: [plugin] });
        await chain.add(holder);
        fs.rmSync(`${lab.tmp}/run`, { recursive: true });
        const container = { ...holder, id: 'an-earlier-one' };
        expect(await lab.plugin(plugin.type, { command: 'DEL', conf, container })).toMatchObject({
          exitCode: 0,
        });
        expect((await lab.ip(holder, 'link')).map(({ ifname }) => ifname)).toContain('eth0');
      });
    },
  );
});

describeNeeding(
  'a late DEL',
  () => {
    const requests = Array.from({ length: 8 }, (_, i) => i + 1);
    test('keeps an interface that another container gets in its path at any moment', async () => {
      const kept = await Promise.all(requests.map(request => keptWhenPausedAt(request)));
      expect(kept).toEqual(requests.map(() => true));
    });
  },
  requiresRoot(),
  requires('strace'),
);

/** Pauses a DEL before one of its requests, in which another container gets its interface. @returns whether it still has it then */
function keptWhenPausedAt(request: number): Promise<boolean> {
  return withHost(async lab => {
    const container = await lab.container();
    const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'bridge', bridge: 'br0' };
    const added = await lab.plugin('bridge', { command: 'ADD', conf, container });
    await lab.ip(container, 'link', 'delete', 'eth0');
    const inject = `inject=sendto,sendmsg:delay_enter=1500000:when=${request}`;
    const deleting = lab.run(
      lab.host,
      ['strace', '-f', '-o', '/dev/null', '-e', inject, `${BIN_DIR}/bridge`],
      {
        env: {
          ...directories(lab.tmp),
          ...{ CNI_COMMAND: 'DEL', CNI_CONTAINERID: container.id, CNI_NETNS: container.path },
          ...{ CNI_IFNAME: 'eth0', CNI_PATH: BIN_DIR },
        },
        stdin: JSON.stringify({ ...conf, prevResult: added.result }),
      },
    );
    await Bun.sleep(800);
    const pair = ['vethother', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', container.name];
    await lab.ip(lab.host, 'link', 'add', ...pair);
    await lab.ip(lab.host, 'link', 'set', 'vethother', 'alias', 'catena:podnet/other/eth0');
    expect(await deleting).toMatchObject({ exitCode: 0 });
    const left = await lab.ip(container, 'link');
    return left.some(({ ifname }) => ifname === 'eth0');
  });
}
