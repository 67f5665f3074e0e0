// Does an installation replace a running daemon without a failed or lost call?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { PROGRAM } from '../helpers/catena.ts';
import { deadline } from '../helpers/deadline.ts';
import { binDirOf, installInto, makeOtherBuild } from '../helpers/installed.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { bridgeOf, leasesIn } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

setDefaultTimeout(deadline(180_000));

describeRoot('catena install of another build', () => {
  const makeLab = useLabs();
  const statusOf = async (lab: Lab) =>
    JSON.parse(
      (
        await lab.run(lab.host, [`${binDirOf(lab)}/catena`, 'daemon', '--status', '--json'], {
          env: directories(lab.tmp),
        })
      ).stdout,
    );
  const identityOf = (file: string) => {
    const { dev, ino } = fs.statSync(file);
    return `${dev}:${ino}`;
  };
  async function startInstalled(lab: Lab, ...args: string[]) {
    const env = Object.entries(directories(lab.tmp)).map(pair => pair.join('='));
    const daemon = lab.start(lab.host, [
      'env',
      ...env,
      `${binDirOf(lab)}/catena`,
      'daemon',
      '--log',
      'none',
      ...args,
    ]);
    await until(async () => (await statusOf(lab)).state === 'alive');
    return daemon;
  }

  test('while fronts of both builds make calls: all succeed, nothing is left, and the successor serves', async () => {
    const lab = await makeLab();
    expect(await installInto(lab, [])).toMatchObject({ exitCode: 0 });
    const bin = binDirOf(lab);
    // The executables of the running daemon, which keep their identity.
    const former = `${lab.tmp}/former`;
    fs.mkdirSync(former);
    for (const name of ['catena-core', 'bridge', 'host-local'])
      fs.linkSync(path.join(bin, name), path.join(former, name));
    const daemon = await startInstalled(lab);
    const other = makeOtherBuild(`${lab.tmp}/other`);
    const conf = bridgeOf(lab);
    const failures: unknown[] = [];
    let isOver = false;
    let calls = 0;
    const caller = async (binDir: string): Promise<void> => {
      const container = await lab.container();
      while (!isOver) {
        for (const command of ['ADD', 'DEL']) {
          const finished = await lab.plugin('bridge', { command, conf, container, binDir });
          if (finished.exitCode !== 0) failures.push([command, binDir, finished]);
          calls++;
        }
      }
    };
    const callers = Promise.all([caller(bin), caller(bin), caller(former), caller(former)]);
    await until(async () => (await statusOf(lab)).served >= 8);
    const installed = await installInto(lab, [], path.join(other, 'catena'));
    expect(installed).toMatchObject({ exitCode: 0, stderr: '' });
    expect(installed.stdout).toMatch(/note: process \d+ has taken over from the daemon, process \d+\n/);
    expect(await daemon.exited).toBe(3);
    const next = await statusOf(lab);
    expect(next.place.executable).toBe(identityOf(path.join(bin, 'catena-core')));
    expect(next.pid).not.toBe(daemon.pid);
    const before = calls;
    await until(async () => (await statusOf(lab)).served >= 8 && calls > before + 8);
    isOver = true;
    await callers;
    expect(failures).toEqual([]);
    // The former build's calls are its own.
    expect((await statusOf(lab)).declined.build.count).toBeGreaterThan(0);
    expect(leasesIn(lab)).toEqual([]);
    expect((await lab.ip(lab.host, 'link')).filter(one => String(one.ifname).startsWith('veth'))).toEqual([]);
    process.kill(next.pid, 'SIGTERM');
    await until(() => !fs.existsSync(`/proc/${next.pid}`));
  });

  test('leaves a daemon alone that runs on with --keep-daemon, or that was started from other executables', async () => {
    const lab = await makeLab();
    expect(await installInto(lab, [])).toMatchObject({ exitCode: 0 });
    const daemon = await startInstalled(lab);
    const other = path.join(makeOtherBuild(`${lab.tmp}/other`), 'catena');
    const installed = await installInto(lab, ['--keep-daemon'], other);
    expect(installed).toMatchObject({ exitCode: 0 });
    expect(installed.stdout).not.toContain('note:');
    expect(await statusOf(lab)).toMatchObject({ pid: daemon.pid });
    const ping = await lab.run(lab.host, [`${binDirOf(lab)}/catena`, 'daemon', '--ping'], {
      env: directories(lab.tmp),
    });
    expect(ping).toMatchObject({ exitCode: 4, stdout: '' });
    // The executable is already the new one, and the daemon still of the replaced build: the next installation replaces it.
    const again = await installInto(lab, [], other);
    expect(again.stdout).toContain('has taken over from the daemon');
    expect(await daemon.exited).toBe(3);
    const { pid } = await statusOf(lab);
    expect(fs.readFileSync(`/proc/${pid}/comm`, 'utf8').trim()).toBe(PROGRAM);
    expect(
      (
        await lab.run(lab.host, [`${binDirOf(lab)}/catena`, 'daemon', '--stop'], {
          env: directories(lab.tmp),
        })
      ).exitCode,
    ).toBe(0);
  });

  test('reports a successor that cannot start, and the former daemon serves on', async () => {
    const lab = await makeLab();
    expect(await installInto(lab, [])).toMatchObject({ exitCode: 0 });
    const config = `${lab.tmp}/daemon.json`;
    fs.writeFileSync(config, '{}');
    const daemon = await startInstalled(lab, '--config', config);
    fs.rmSync(config);
    const other = path.join(makeOtherBuild(`${lab.tmp}/other`), 'catena');
    const installed = await installInto(lab, [], other);
    expect(installed.exitCode).toBe(1);
    expect(installed.stdout).toContain(
      `process ${daemon.pid}, is of the replaced build: its successor did not listen`,
    );
    expect(await statusOf(lab)).toMatchObject({ pid: daemon.pid });
  });
});
