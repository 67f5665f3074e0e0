// Does the first call start a daemon, and many calls at once one only, without any of them waiting for it?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { socketPathOf, startNoteOf } from '../../src/daemon/protocol.ts';
import { bootId, readProcessStat } from '../../src/files/process-stat.ts';
import { putUpkeep } from '../../src/node/upkeep/note.ts';
import { deadline } from '../helpers/deadline.ts';
import { binDirOf, installInto } from '../helpers/installed.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { bridgeOf } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

describeRoot('a call where daemons are started on demand', () => {
  const makeLab = useLabs();
  const fileOf = (lab: Lab) => `${binDirOf(lab)}/catena-core.on-demand`;
  const noteOf = (lab: Lab) => startNoteOf(socketPathOf(`${lab.tmp}/run`));

  /** Executables whose calls start daemons with these options. */
  async function installOnDemand(lab: Lab, ...args: string[]): Promise<void> {
    const installed = await installInto(lab, ['--daemon', 'on-demand']);
    expect(installed).toMatchObject({ exitCode: 0, stderr: '' });
    const settings = JSON.parse(fs.readFileSync(fileOf(lab), 'utf8'));
    expect(settings).toMatchObject({
      runDir: `${lab.tmp}/run`,
      args: ['--log', 'none', '--idle-exit', '300'],
    });
    fs.writeFileSync(fileOf(lab), JSON.stringify({ ...settings, args }));
  }

  /** Long enough for two calls and a look, on a busy machine, too. */
  const idleSeconds = () => String(deadline(1_500) / 1000);

  const call = (lab: Lab) => {
    const conf = { ...bridgeOf(lab), cniVersion: '1.1.0' };
    return lab.plugin('bridge', { command: 'STATUS', conf, binDir: binDirOf(lab) });
  };
  const statusOf = async (lab: Lab) =>
    JSON.parse(
      (
        await lab.run(lab.host, [`${binDirOf(lab)}/catena`, 'daemon', '--status', '--json'], {
          env: directories(lab.tmp),
        })
      ).stdout,
    );
  const isDaemonWith = (word: string, pid: number): boolean => {
    try {
      const argv = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
      return argv[1] === 'daemon' && argv.includes(word);
    } catch {
      return false;
    }
  };
  const parentOf = (pid: number): number => readProcessStat(pid)?.parent ?? 0;
  /** The processes of daemons with this option's value, now. A worker looks like its daemon until it has executed its program. */
  const daemonsWith = (word: string): number[] =>
    fs
      .readdirSync('/proc')
      .filter(name => /^\d+$/.test(name))
      .map(Number)
      .filter(pid => isDaemonWith(word, pid) && !isDaemonWith(word, parentOf(pid)));
  /** Notes every daemon process with this word until the end. */
  function watchDaemons(word: string): { readonly seen: Set<number>; stop(): void } {
    const seen = new Set<number>();
    const timer = setInterval(() => {
      for (const pid of daemonsWith(word)) seen.add(pid);
    }, 10);
    return { seen, stop: () => clearInterval(timer) };
  }

  test('starts one that serves the next calls and ends when idle; it inherits no marks and no descriptors', async () => {
    const lab = await makeLab();
    await installOnDemand(lab, '--log', 'none', '--idle-exit', idleSeconds());
    expect(await statusOf(lab)).toMatchObject({ state: 'absent' });
    expect(await call(lab)).toMatchObject({ exitCode: 0, stdout: '' });
    await until(async () => (await statusOf(lab)).state === 'alive');
    const { pid, startedBy } = await statusOf(lab);
    expect(startedBy).toBe('on-demand');
    expect(await call(lab)).toMatchObject({ exitCode: 0, stdout: '' });
    expect((await statusOf(lab)).served).toBe(1);
    const environment = fs.readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
    expect(environment.filter(one => one.startsWith('CNI_'))).toEqual([]);
    expect(environment).toContain('MIMALLOC_PURGE_HOLES_MIN_INTERVAL=60000');
    expect(environment).toContain('BUN_GC_TIMER_INTERVAL=30000');
    for (const fd of ['0', '1', '2']) expect(fs.readlinkSync(`/proc/${pid}/fd/${fd}`)).toBe('/dev/null');
    const [, , , group, session] = fs
      .readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/\(.*\)/, '')
      .split(' ');
    expect([session, group]).toContain(String(pid));
    await until(() => !fs.existsSync(`/proc/${pid}`));
    expect(fs.readdirSync(`${lab.tmp}/run`).filter(name => /wire|calls|sock$/.test(name))).toEqual([]);
  });

  test('starts another one in place of one that can only decline, whatever that keeps', async () => {
    const lab = await makeLab();
    const idle = idleSeconds();
    await installOnDemand(lab, '--log', 'none', '--idle-exit', idle);
    const { CATENA_STATE_DIR = '' } = directories(lab.tmp);
    putUpkeep(CATENA_STATE_DIR, 'bridge', {
      ...{ network: 'lan', containerId: 'web', ifname: 'eth0', id: '1', boot: bootId(), dueAt: 1e12 },
      ...{ call: { env: { CNI_NETNS: lab.host.path }, stdin: '{"name":"lan"}' }, state: 1 },
    });
    await call(lab);
    await until(async () => (await statusOf(lab)).state === 'alive');
    const { pid } = await statusOf(lab);
    // It keeps an attachment, so it stays, although only another network namespace asks, which would start none.
    const stranger = await lab.container();
    const env = directories(lab.tmp);
    for (
      const since = performance.now();
      performance.now() < since + 2_000 * Number(idle);
      await Bun.sleep(300)
    )
      await lab.run(stranger, [`${binDirOf(lab)}/catena`, 'status', 'none'], { env });
    expect(await statusOf(lab)).toMatchObject({ state: 'alive', pid });
    // As a copied release does: the same names, other files.
    const core = `${binDirOf(lab)}/catena-core`;
    fs.copyFileSync(core, `${core}.new`);
    fs.renameSync(`${core}.new`, core);
    await until(async () => (await call(lab)).exitCode === 0 && !fs.existsSync(`/proc/${pid}`));
    fs.utimesSync(noteOf(lab), 1, 1);
    await call(lab);
    await until(async () => (await statusOf(lab)).state === 'alive');
    process.kill((await statusOf(lab)).pid, 'SIGTERM');
  });

  test('starts one daemon when 200 calls come at once, and all of them succeed', async () => {
    const lab = await makeLab();
    const word = `node-of-${lab.host.name}`;
    await installOnDemand(lab, '--log', 'none', '--idle-exit', '20', '--node-name', word);
    const { seen, stop } = watchDaemons(word);
    const outcomes = await Promise.all(Array.from({ length: 200 }, () => call(lab)));
    expect(outcomes.filter(({ exitCode }) => exitCode !== 0)).toEqual([]);
    await until(async () => (await statusOf(lab)).state === 'alive');
    stop();
    expect(seen.size).toBe(1);
    const [pid = 0] = seen;
    expect(await statusOf(lab)).toMatchObject({ pid });
    process.kill(pid, 'SIGTERM');
    await until(() => !fs.existsSync(`/proc/${pid}`));
  });

  test('does not start again for a while one that ends at once or was killed', async () => {
    const lab = await makeLab();
    const word = `node-of-${lab.host.name}`;
    await installOnDemand(lab, '--node-name', word, '--workers', 'none');
    const { seen, stop } = watchDaemons(word);
    // Each start writes the note; a daemon that ends at once may be gone before anything sees it.
    const noted = new Set<number>();
    // As many as fit into that while on a busy machine.
    const since = performance.now();
    for (let i = 0; i < 5 && performance.now() < since + 15_000; i++) {
      expect(await call(lab)).toMatchObject({ exitCode: 0 });
      noted.add(fs.statSync(noteOf(lab)).mtimeMs);
    }
    expect(noted.size).toBe(1);
    await until(() => daemonsWith(word).length === 0);
    // As if half a minute had passed.
    const before = Date.now() / 1000 - 31;
    fs.utimesSync(noteOf(lab), before, before);
    expect(await call(lab)).toMatchObject({ exitCode: 0 });
    expect(fs.statSync(noteOf(lab)).mtimeMs).toBeGreaterThan(Math.max(...noted));
    await until(() => daemonsWith(word).length === 0);
    stop();
    expect(seen.size).toBeLessThanOrEqual(2);
  });

  test('starts none in another network or mount namespace than that of the installation', async () => {
    const lab = await makeLab();
    await installOnDemand(lab, '--log', 'none', '--idle-exit', '61');
    const stranger = await lab.container();
    const daemons = watchDaemons('61');
    const env = directories(lab.tmp);
    const ask = [`${binDirOf(lab)}/catena`, 'status', 'none'];
    await lab.run(stranger, ask, { env });
    await lab.run(lab.host, ['unshare', '--mount', ...ask], { env });
    expect(fs.existsSync(noteOf(lab))).toBe(false);
    await call(lab);
    await until(() => daemons.seen.size === 1);
    daemons.stop();
  });

  test('starts none for another run directory, or where its note cannot be written', async () => {
    const lab = await makeLab();
    await installOnDemand(lab, '--log', 'none');
    const conf = { ...bridgeOf(lab), cniVersion: '1.1.0' };
    const env = { CATENA_RUN_DIR: `${lab.tmp}/other` };
    const binDir = binDirOf(lab);
    expect(await lab.plugin('bridge', { command: 'STATUS', conf, binDir, env })).toMatchObject({
      exitCode: 0,
    });
    expect(fs.existsSync(startNoteOf(socketPathOf(`${lab.tmp}/other`)))).toBe(false);
    fs.mkdirSync(noteOf(lab), { recursive: true });
    expect(await call(lab)).toMatchObject({ exitCode: 0, stderr: '' });
    expect((await statusOf(lab)).state).toBe('absent');
  });
});
