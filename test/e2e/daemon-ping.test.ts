// Does `catena daemon --ping` tell a daemon that serves from one that does not, by its exit code?
import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import type net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { decline, socketPathOf } from '../../src/daemon/protocol.ts';
import { encodeAnswer } from '../../src/daemon/wire.ts';
import { CATENA } from '../helpers/catena.ts';
import { type Finished, run } from '../helpers/command.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { useLabs } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { actAsDaemon } from '../helpers/wire.ts';

const tmp = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-ping-'));
afterAll(() => fs.rmSync(tmp, { recursive: true, force: true }));

const pingIn = (runDir: string, ...args: string[]): Promise<Finished> =>
  run([CATENA, 'daemon', '--ping', '--run-dir', runDir, ...args]);
/** The same question by the front. */
const probeIn = (runDir: string): Promise<Finished> =>
  run([CATENA, 'daemon', '--ping'], { env: { CATENA_RUN_DIR: runDir } });

describeRoot('catena daemon --ping', () => {
  const makeLab = useLabs();

  test('ends with 0 and a line while the daemon answers, and with 5 while it is stopped', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab);
    const dir = path.dirname(daemon.socket);
    const here = (...args: string[]) =>
      lab.run(lab.host, [CATENA, 'daemon', '--ping', '--run-dir', dir, ...args], { timeoutMs: 20_000 });
    const alive = await here();
    expect(alive).toMatchObject({ exitCode: 0, stderr: '' });
    expect(alive.stdout).toMatch(
      new RegExp(
        `^daemon \\S+ \\(executable \\d+:\\d+\\), process ${daemon.pid}, 0 in progress, up \\d+ s\\n$`,
      ),
    );
    expect(JSON.parse((await here('--json')).stdout)).toMatchObject({
      state: 'alive',
      reply: { pid: daemon.pid, running: 0, queued: 0 },
    });
    // Without other options, the front asks: a probe starts no Bun program.
    const probe = (...args: string[]) =>
      lab.run(lab.host, [CATENA, 'daemon', '--ping', ...args], { env: { CATENA_RUN_DIR: dir } });
    for (const args of [[], ['--deadline=60']])
      expect(await probe(...args)).toMatchObject({
        exitCode: 0,
        stdout: expect.stringMatching(/^daemon \S+ \(executable \d+:\d+\), process/),
      });
    process.kill(daemon.pid, 'SIGSTOP');
    expect(await here('--deadline', '0.3')).toEqual({
      exitCode: 5,
      stdout: '',
      stderr: `catena: the daemon in "${dir}" did not answer within 0.3 s\n`,
    });
    process.kill(daemon.pid, 'SIGCONT');
    expect((await here()).exitCode).toBe(0);
    process.kill(daemon.pid, 'SIGKILL');
    await daemon.exited;
    expect((await here()).exitCode).toBe(3);
    expect((await probe()).exitCode).toBe(3);
  });
});

describe('catena daemon --ping', () => {
  test('ends with 3 without a daemon, and where a service manager keeps the socket for one', async () => {
    const dir = path.join(tmp, 'none');
    const said = { exitCode: 3, stdout: '', stderr: `catena: no daemon listens in "${dir}"\n` };
    expect(await pingIn(dir)).toEqual(said);
    let connections = 0;
    const kept = await actAsDaemon(socketPathOf(dir), () => connections++);
    for (const name of fs.readdirSync(dir)) if (name.includes('calls')) fs.rmSync(path.join(dir, name));
    expect(await pingIn(dir)).toEqual(said);
    expect(await probeIn(dir)).toEqual(said);
    expect(connections).toBe(0);
    await kept.stop();
  });

  test.each([
    ['answers as another build', otherBuild(), 4],
    ['knows no pings', encodeAnswer(decline('request', '')), 4],
    ['answers with something else', Buffer.alloc(200, 1), 5],
  ])('tells by its exit code that a daemon %s', async (_, bytes, exitCode) => {
    const dir = path.join(tmp, `fake-${exitCode}-${bytes.length}`);
    const daemon = await actAsDaemon(socketPathOf(dir), (client: net.Socket) => client.end(bytes));
    const finished = await pingIn(dir, '--json');
    expect(finished).toMatchObject({ exitCode, stderr: '' });
    expect(JSON.parse(finished.stdout)).toMatchObject({ state: exitCode === 4 ? 'other build' : 'silent' });
    // A daemon that knows no probes declines them, whatever it answers to a ping.
    if (bytes.length !== otherBuild().length) expect((await probeIn(dir)).exitCode).toBe(exitCode);
    await daemon.stop();
  });

  test('refuses a deadline that is none', async () => {
    for (const value of ['0', 'soon', '1e9']) {
      const { exitCode, stderr } = await pingIn(tmp, '--deadline', value);
      expect(exitCode).toBe(2);
      expect(stderr).toContain('expected a number of seconds');
    }
  });
});

function otherBuild(): Uint8Array {
  const reply = { version: '0.0.1', executable: '1:1', pid: 1, running: 2, queued: 3, uptimeSeconds: 4 };
  return encodeAnswer({ exitCode: 0, stdout: JSON.stringify(reply), stderr: '' });
}
