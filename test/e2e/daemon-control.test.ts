// Do `catena daemon --status` and `--stop` describe and end the daemon that runs, and only that one?
import { expect, test } from 'bun:test';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { CATENA } from '../helpers/catena.ts';
import type { Finished } from '../helpers/command.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { holdLeases } from '../helpers/held-leases.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const daemonIn = (lab: Lab, ...args: string[]): Promise<Finished> =>
  lab.run(lab.host, [CATENA, 'daemon', ...args], { env: directories(lab.tmp), timeoutMs: 30_000 });

describeRoot('catena daemon', () => {
  const makeLab = useLabs();

  test('--status describes the daemon, as text and as JSON', async () => {
    const lab = await makeLab();
    const dir = `${lab.tmp}/run`;
    const none = { exitCode: 3, stdout: `no daemon runs in "${dir}"\n`, stderr: '' };
    expect(await daemonIn(lab, '--status')).toEqual(none);
    const daemon = await startDaemon(lab);
    const { exitCode, stdout } = await daemonIn(lab, '--status');
    expect(exitCode).toBe(0);
    expect(stdout).toContain(`process    ${daemon.pid}, up `);
    expect(stdout).toContain(`sockets    ${daemon.socket}, ${daemon.socket}.wire\n`);
    expect(stdout).toContain('started    by a command\n');
    expect(stdout).toContain('declined   none\n');
    const json = JSON.parse((await daemonIn(lab, '--status', '--json')).stdout);
    expect(json).toMatchObject({
      ...{ state: 'alive', running: 0, queued: 0, pid: daemon.pid, startedBy: 'command', declined: {} },
      program: path.join(path.dirname(CATENA), path.basename(json.program)),
    });
    process.kill(daemon.pid, 'SIGSTOP');
    expect(await daemonIn(lab, '--status')).toMatchObject({ exitCode: 5, stdout: '' });
    expect(await daemonIn(lab, '--stop')).toMatchObject({
      exitCode: 1,
      stderr: `catena: Cannot stop the daemon in "${dir}": it does not respond\n`,
    });
    process.kill(daemon.pid, 'SIGKILL');
    await daemon.exited;
    expect(await daemonIn(lab, '--status')).toEqual(none);
    expect(await daemonIn(lab, '--stop')).toEqual({ ...none, exitCode: 0 });
  });

  test('--stop waits for the calls in progress, which succeed, and leaves no socket', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    const daemon = await startDaemon(lab);
    const adding = chain.add(container);
    await waiter('--worker');
    const stopping = daemonIn(lab, '--stop');
    await until(async () => !readdirSync(path.dirname(daemon.socket)).includes('catena.sock.wire'));
    let ended = false;
    void stopping.then(() => {
      ended = true;
    });
    await Bun.sleep(300);
    expect(ended).toBe(false);
    release();
    expect((await adding).ips).toHaveLength(2);
    expect(await stopping).toEqual({ exitCode: 0, stdout: `process ${daemon.pid} has ended\n`, stderr: '' });
    expect(await daemon.exited).toBe(0);
    expect(readdirSync(path.dirname(daemon.socket)).filter(name => /wire|calls|sock$/.test(name))).toEqual(
      [],
    );
    const next = await startDaemon(lab);
    expect(await stateOf(next)).toMatchObject({ pid: next.pid });
    expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
  });
});
