// What is left when the runner is killed at any boundary between plugins, on a real kernel?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { filesBelow } from '../helpers/journal.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { FIXTURE_PLUGINS } from '../helpers/noop-chain.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

// Installed once per host, and empty without attachments.
const SKELETON = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'] };
const CAP = {
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
  bandwidth: { ingressRate: 1e8, ingressBurst: 1e6, egressRate: 1e8, egressBurst: 1e6 },
};
const PLUGINS = ['bridge', 'portmap', 'bandwidth', 'tuning'];

/** The chain with a plugin in it that kills the runner on a verb, after so many of ours; -1 puts none there. */
function listWith(lab: Lab, verb: string, after: number): Row {
  const { plugins, ...list } = fullChain(lab);
  fs.writeFileSync(scriptOf(lab), after < 0 ? '{}' : JSON.stringify({ KillRunner: [verb] }));
  const killer = { type: 'noop', debugFile: scriptOf(lab) };
  return { ...list, plugins: after < 0 ? plugins : plugins.toSpliced(after, 0, killer) };
}

function scriptOf(lab: Lab): string {
  return `${lab.tmp}/killer.json`;
}

function linksDir(lab: Lab): string {
  const dir = `${lab.tmp}/bin`;
  fs.mkdirSync(dir);
  for (const name of [...PLUGINS, 'ptp', 'host-local'])
    fs.symlinkSync(`${BIN_DIR}/${name}`, `${dir}/${name}`);
  fs.writeFileSync(`${dir}/noop`, `#!/bin/sh\nexec ${FIXTURE_PLUGINS}/noop\n`, { mode: 0o755 });
  return dir;
}

async function expectNothing(lab: Lab, before: unknown): Promise<void> {
  expect(await lab.dump(lab.host, SKELETON)).toEqual(before as never);
  // The daemon's lock on notes of upkeep is no attachment's.
  const kept = ['boot', 'upkeep/lock', 'history/events', 'history/lists'];
  const isKept = (name: string) => kept.includes(name) || name.startsWith('caches/');
  expect(filesBelow(`${lab.tmp}/state`).filter(name => !isKept(name))).toEqual([]);
  expect(filesBelow(`${lab.tmp}/cni/results`)).toEqual([]);
  expect(filesBelow(`${lab.tmp}/tuning`)).toEqual([]);
  expect(filesBelow(`${lab.tmp}/leases`).filter(name => /\/[0-9a-f]+[.:][0-9a-f.:]+$/.test(name))).toEqual(
    [],
  );
}

async function withCrash(
  verb: 'ADD' | 'DEL',
  after: number,
  then: (lab: Lab, crashed: Container, run: Runner) => Promise<void>,
): Promise<void> {
  await withHost(async lab => {
    await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
    await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
    const binDir = linksDir(lab);
    const container = await lab.container();
    // The bridge stays when its last port has gone.
    const warm = await lab.container();
    const run: Runner = (command, which) =>
      writeChain(lab, listWith(lab, verb, -1)).run(command, which, { cap: CAP, binDir });
    for (const command of ['add', 'del']) expect((await run(command, warm)).exitCode).toBe(0);
    const before = await lab.dump(lab.host, SKELETON);

    const killing = writeChain(lab, listWith(lab, verb, after));
    const killed = async (command: string) => {
      const { exitCode, stdout } = await killing.run(command, container, { cap: CAP, binDir });
      expect([exitCode === 0, stdout]).toEqual([false, '']);
    };
    if (verb === 'DEL') await killing.add(container, { cap: CAP, binDir });
    await killed(verb.toLowerCase());
    fs.writeFileSync(scriptOf(lab), '{}');
    expect(filesBelow(`${lab.tmp}/state/unsettled`)).toHaveLength(1);
    const left = await lab.run(lab.host, [CATENA, 'ls', '--unsettled'], { env: directories(lab.tmp) });
    expect(left.stdout).toMatch(new RegExp(`^podnet ${container.id} eth0: .+\\n$`));
    await then(lab, container, run);
    await expectNothing(lab, before);
  });
}

type Runner = (command: string, which: Container) => Promise<{ exitCode: number; stderr: string }>;

const POINTS = [0, ...PLUGINS.map((_, i) => i + 1)];

describeRoot('a runner that is killed', () => {
  test.each(POINTS)('in ADD after %i plugins is undone by the next command on the network', async after => {
    await withCrash('ADD', after, async (lab, _, run) => {
      const other = await lab.container();
      for (const command of ['add', 'del'])
        expect(await run(command, other)).toMatchObject({ exitCode: 0, stderr: '' });
    });
  });

  test.each(POINTS)(
    'in DEL before %i plugins is finished by the next command on the network',
    async after => {
      await withCrash('DEL', after, async (lab, _, run) => {
        const other = await lab.container();
        for (const command of ['add', 'del'])
          expect(await run(command, other)).toMatchObject({ exitCode: 0, stderr: '' });
      });
    },
  );

  test('in ADD, with its container gone, is undone by catena repair', async () => {
    await withCrash('ADD', 3, async (lab, container) => {
      await lab.remove(container);
      const argv = [`${BIN_DIR}/catena`, 'repair'];
      const env = directories(lab.tmp);
      const repaired = await lab.run(lab.host, argv, { env, timeoutMs: 50_000 });
      expect(repaired).toMatchObject({
        exitCode: 0,
        stdout: `DEL     podnet ${container.id} eth0: its ADD was interrupted\nattachments: 0 sound, 0 mended, 0 broken, 0 skipped\n`,
      });
    });
  });

  test('in ADD is undone by a daemon that starts', async () => {
    await withCrash('ADD', 4, async lab => {
      const daemon = await startDaemon(lab);
      await until(() => filesBelow(`${lab.tmp}/state/unsettled`).length === 0);
      expect(await daemon.stop()).toBe(0);
    });
  });

  test('in ADD is left alone in every other network namespace', async () => {
    await withCrash('ADD', 4, async (lab, crashed, run) => {
      // All share their files, as hosts do with the namespaces of `ip netns`.
      const stranger = await lab.container();
      const there = writeChain({ ...lab, host: stranger }, listWith(lab, 'ADD', -1));
      const options = { cap: CAP, binDir: `${lab.tmp}/bin` };
      const before = { node: await lab.dump(lab.host), files: filesBelow(`${lab.tmp}/leases`) };
      const other = await lab.container();
      for (const verb of ['add', 'del']) expect((await there.run(verb, other, options)).exitCode).toBe(0);
      expect(await there.run('gc', other, { binDir: options.binDir, args: ['--all'] })).toMatchObject({
        exitCode: 0,
      });
      const env = directories(lab.tmp);
      for (const argv of [['repair'], ['gc', '--gone']])
        expect((await lab.run(stranger, [`${BIN_DIR}/catena`, ...argv], { env })).exitCode).toBe(0);
      for (const verb of ['add', 'del']) {
        const refused = await there.run(verb, crashed, options);
        expect([refused.exitCode, refused.stderr]).toEqual([
          1,
          expect.stringContaining('another network namespace'),
        ]);
      }
      const after = { node: await lab.dump(lab.host), files: filesBelow(`${lab.tmp}/leases`) };
      expect(after).toEqual(before);
      // Where it was made, it is deleted.
      expect(await run('del', crashed)).toMatchObject({ exitCode: 0, stderr: '' });
    });
  });

  test('in ADD does not prevent another ADD of its container', async () => {
    await withCrash('ADD', 2, async (_, container, run) => {
      for (const command of ['add', 'check', 'del'])
        expect(await run(command, container)).toMatchObject({ exitCode: 0, stderr: '' });
    });
  });
});

describeRoot('a delegate runner that is killed', () => {
  test.each(['the next pod', 'catena repair'])('leaves no network of its pod behind %s', async who => {
    await withHost(async lab => {
      await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
      const binDir = linksDir(lab);
      const network = (name: string, subnet: string, more: Row[] = []) => ({
        cniVersion: '1.1.0',
        name,
        plugins: [
          { type: 'ptp', ipam: { type: 'host-local', subnet, dataDir: `${lab.tmp}/leases` } },
          ...more,
        ],
      });
      const killer = { type: 'noop', debugFile: scriptOf(lab) };
      const conf = {
        cniVersion: '1.1.0',
        name: 'pods',
        type: 'catena',
        binDir,
        delegates: [network('one', '10.1.0.0/24'), network('two', '10.2.0.0/24', [killer])],
      };
      const [crashed, other] = [await lab.container(), await lab.container()];
      const before = await lab.dump(lab.host);
      fs.writeFileSync(scriptOf(lab), JSON.stringify({ KillRunner: ['ADD'] }));
      const { exitCode } = await lab.plugin('catena', { command: 'ADD', conf, container: crashed });
      expect(exitCode).toBe(137);
      fs.writeFileSync(scriptOf(lab), '{}');

      if (who === 'catena repair') {
        const argv = [`${BIN_DIR}/catena`, 'repair', '--json'];
        const { stdout } = await lab.run(lab.host, argv, { env: directories(lab.tmp), timeoutMs: 50_000 });
        const why = 'its ADD was interrupted';
        expect(JSON.parse(stdout).recovered).toEqual([
          { network: 'pods', ifname: 'eth0', why, containerId: crashed.id },
        ]);
      } else {
        for (const command of ['ADD', 'DEL'] as const)
          expect(await lab.plugin('catena', { command, conf, container: other })).toMatchObject({
            exitCode: 0,
          });
      }
      expect(await lab.dump(lab.host)).toEqual(before);
      expect(
        filesBelow(`${lab.tmp}/state`).filter(name => !/boot$|^history|(^|\/)caches\//.test(name)),
      ).toEqual([]);
      expect(filesBelow(`${lab.tmp}/leases`).filter(name => /\/[0-9.]+$/.test(name))).toEqual([]);
    });
  });
});

describeRoot('a system container that was restarted', () => {
  test('has other namespaces than its attachments, and doctor says what deletes those', async () => {
    await withHost(async lab => {
      const [former, gone, restarted] = [await lab.container(), await lab.container(), await lab.container()];
      const chain = writeChain({ ...lab, host: former }, fullChain(lab));
      await chain.add(gone);
      await lab.remove(gone);
      fs.mkdirSync(`${lab.tmp}/net.d`);
      fs.writeFileSync(`${lab.tmp}/net.d/10.conflist`, JSON.stringify(chain.list));
      const env = { ...directories(lab.tmp), NETCONFPATH: `${lab.tmp}/net.d`, CNI_PATH: BIN_DIR };
      const run = (script: string) => lab.run(restarted, ['sh', '-c', script], { env, timeoutMs: 50_000 });
      const adviceOf = async () =>
        /another network namespace.*\n +fix: (catena .*)/.exec((await run(`${CATENA} doctor`)).stdout)?.[1];
      expect(await adviceOf()).toBeUndefined();
      await lab.remove(former);
      const advice = (await adviceOf()) ?? '';
      expect(await run(advice.replace('catena', CATENA))).toMatchObject({ exitCode: 0 });
      expect(await chain.leases()).toEqual([]);
      expect((await run(`${CATENA} ls`)).stdout).not.toContain(gone.id);
    });
  });
});
