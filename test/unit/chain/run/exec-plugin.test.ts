import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { type ExecOutcome, retryWhileBusy, startProcess } from '../../../../src/chain/run/exec-plugin.ts';
import { startPlugin } from '../../../../src/chain/run/segment.ts';
import { wholeLines } from '../../../helpers/lines.ts';
import { FIXTURE_PLUGINS } from '../../../helpers/noop-chain.ts';
import { until } from '../../../helpers/until.ts';

const PATH = process.env.PATH;
let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-exec-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

function script(text: string): string {
  const file = path.join(dir, 'link');
  fs.writeFileSync(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

const isRunning = (pid: number) => {
  try {
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
};
const gone = async (pids: readonly number[]) => {
  while (pids.some(isRunning)) await Bun.sleep(20);
};

// At once, and as soon as execa is loaded.
describe.each([
  ['startProcess()', startProcess],
  ['startPlugin()', startPlugin],
])('%s', (_, start) => {
  const send = (name: string, env: Record<string, string> = {}, deadlineMs = 30_000, request = '{}') =>
    start({ path: path.join(FIXTURE_PLUGINS, name), env: { PATH, ...env }, deadlineMs }).send(request);
  const sendTo = (file: string, request = '', env: Record<string, string | undefined> = { PATH }) =>
    start({ path: file, env, deadlineMs: 30_000 }).send(request);

  test('passes the request and returns output, exit status and time', async () => {
    const outcome = await sendTo(script('cat; echo words >&2; exit 3'), '{"a":"ü"}');
    expect(outcome).toEqual({
      exitCode: 3,
      stdout: '{"a":"ü"}',
      stderr: 'words\n',
      durationMs: expect.any(Number),
    });
  });

  test.each([7, 5_000_000])(
    'a shell script may open its streams by their names: a request of %i bytes',
    async bytes => {
      const request = 'x'.repeat(bytes);
      const outcome = await sendTo(script('echo words > /dev/stderr; cat /dev/stdin > /dev/stdout'), request);
      expect(outcome).toMatchObject({ exitCode: 0, stderr: 'words\n' });
      expect(outcome.stdout === request).toBe(true);
    },
  );

  test('gives the plugin exactly the given environment', async () => {
    const { stdout } = await sendTo(script('exec /usr/bin/env'), '', { ONE: '1', GONE: undefined });
    const names = stdout
      .trim()
      .split('\n')
      .map(line => line.split('=')[0]);
    // PWD, SHLVL and _ are the shell's own.
    expect(names.filter(name => !['PWD', 'SHLVL', '_', 'OLDPWD'].includes(name ?? ''))).toEqual(['ONE']);
  });

  test('accepts a plugin that never reads its request', async () => {
    const outcome = await sendTo(script('exec <&-; exit 0'), 'x'.repeat(1024 * 1024));
    expect(outcome).toMatchObject({ exitCode: 0, stdout: '' });
  });

  test('reports the signal that ended a plugin', async () => {
    const outcome = await sendTo(script('kill -SEGV $$'));
    expect(outcome.signal).toBe('SIGSEGV');
    expect('exitCode' in outcome).toBe(false);
  });

  test('makes the plugin leader of its own process group', async () => {
    const { stdout } = await sendTo(script('read -r line < /proc/self/stat; echo "$$ $line"'));
    const [pid, ...stat] = stdout.trim().split(' ');
    expect(stat[4]).toBe(pid as string);
  });

  test('kills the whole group at the deadline, even those that ignore SIGTERM', async () => {
    const pids = path.join(dir, 'pids');
    fs.rmSync(pids, { force: true });
    let outcome: ExecOutcome | undefined;
    // On a busy machine it may not have come so far: then it gets longer.
    for (let ms = 300; wholeLines(pids).length === 0 && ms < 60_000; ms *= 4)
      outcome = await send('hang', { HANG_PIDS: pids }, ms);
    expect(outcome).toMatchObject({ signal: 'SIGKILL', ended: 'deadline' });
    const [line] = wholeLines(pids);
    expect(line).toBeString();
    await gone((line ?? '').split(' ').map(Number));
  });

  test('does not wait for a grandchild that holds standard output', async () => {
    const pids = path.join(dir, 'pids');
    const outcome = await send('hang', { HANG_PIDS: pids, HANG_DETACH: '1' });
    expect(outcome).toMatchObject({ exitCode: 0 });
    expect(JSON.parse(outcome.stdout).ips).toHaveLength(1);
    const [, grandchild] = fs.readFileSync(pids, 'utf8').split(' ').map(Number);
    // Whatever a plugin leaves running on purpose stays: the deadline is for plugins that do not end.
    expect(isRunning(grandchild as number)).toBe(true);
    process.kill(grandchild as number, 'SIGKILL');
  });

  test('kills a plugin that prints without end', async () => {
    const outcome = await send('garbage', { GARBAGE: 'huge' });
    expect(outcome.ended).toBe('output');
    expect(outcome.stdout).toHaveLength(16 * 1024 * 1024);
  });

  test('keeps the end of a long standard error', async () => {
    const outcome = await send('garbage', { GARBAGE: 'stderr' });
    expect(outcome.exitCode).toBe(1);
    expect(outcome.stderr).toHaveLength(1024 * 1024);
    expect(outcome.stderr).toEndWith('xxxthe end');
  });

  test('waits for a file that is still open for writing', async () => {
    const file = path.join(dir, 'busy');
    fs.copyFileSync('/bin/true', file);
    const fd = fs.openSync(file, 'r+');
    setTimeout(() => fs.closeSync(fd), 100);
    expect(await sendTo(file)).toMatchObject({ exitCode: 0 });
  });

  test('reports a file that stays open for writing', async () => {
    const file = path.join(dir, 'busy');
    fs.copyFileSync('/bin/true', file);
    const fd = fs.openSync(file, 'r+');
    const outcome = await start({ path: file, env: {}, deadlineMs: 300 }).send('');
    fs.closeSync(fd);
    expect(outcome.spawnError).toStartWith('ETXTBSY');
  });

  test.each([
    ['is not there', 'none', undefined, 'ENOENT'],
    ['may not be executed', 'plain', 0o644, 'EACCES'],
    ['is no program', 'noise', 0o755, 'ENOEXEC: it is a program for another kind of processor, or a script'],
    [
      'names an interpreter that is not there',
      'script',
      0o755,
      'ENOENT: it is there, but not the interpreter',
    ],
  ])('reports a file that %s', async (_, name, mode, code) => {
    const file = path.join(dir, name);
    const text = name === 'script' ? '#!/bin/none\n' : 'garbage';
    if (mode !== undefined) fs.writeFileSync(file, text, { mode });
    const outcome = await sendTo(file);
    expect(outcome.spawnError).toStartWith(code);
    expect('exitCode' in outcome).toBe(false);
  });
});

describe('startProcess()', () => {
  test('keeps the output of a plugin that ended before it got its request', async () => {
    const started = startProcess({ path: script('echo early; exit 2'), env: { PATH }, deadlineMs: 5000 });
    await Bun.sleep(200);
    expect(await started.send('{}')).toMatchObject({ exitCode: 2, stdout: 'early\n' });
  });

  test('discard() ends a started plugin without a request', async () => {
    const pids = path.join(dir, 'pids');
    const started = startProcess({
      path: script(`echo $$ > ${pids}.new; mv ${pids}.new ${pids}; cat; echo acted >> ${pids}`),
      env: { PATH },
      deadlineMs: 60_000,
    });
    while (!fs.existsSync(pids)) await Bun.sleep(10);
    started.discard();
    await gone([Number(fs.readFileSync(pids, 'utf8'))]);
    expect(fs.readFileSync(pids, 'utf8')).not.toContain('acted');
  });
});

/** More than what the engine opens once. */
const ROUNDS = 10;

test('no descriptor stays open, however a plugin ends', async () => {
  const own = () => fs.readdirSync('/proc/self/fd').length;
  const begin = (text: string, deadlineMs = 30_000) => {
    return startProcess({ path: script(text), env: { PATH }, deadlineMs });
  };
  const before = own();
  for (let i = 0; i < ROUNDS; i++) {
    await begin('cat').send('{}');
    await begin('sleep 1 & exit 0').send('{}');
    await startProcess({ path: path.join(dir, 'none'), env: {}, deadlineMs: 1_000 }).send('{}');
    begin('sleep 60').discard();
  }
  await begin('sleep 60', 50).send('x'.repeat(1_000_000));
  // Another test may still close some, and this one opens some that stay.
  await until(() => own() < before + ROUNDS);
});

test('without descriptors a plugin either runs or is said not to have started', async () => {
  const program = `
    import { closeSync, openSync } from 'node:fs';
    import { startProcess } from '${path.resolve('src/chain/run/exec-plugin.ts')}';
    const start = () => startProcess({ path: '/bin/cat', env: {}, deadlineMs: 30_000 }).send('{}');
    await start();
    const fds = [];
    try {
      for (;;) fds.push(openSync('/dev/null', 'r'));
    } catch {}
    const outcomes = [];
    for (let free = 0; free < 16; free++) {
      outcomes.push(await start());
      closeSync(fds.pop());
    }
    for (const fd of fds) closeSync(fd);
    for (const { spawnError, stdout } of outcomes) console.log(spawnError ?? stdout);
  `;
  const file = path.join(dir, 'full.ts');
  fs.writeFileSync(file, program);
  const full = Bun.spawn(['sh', '-c', 'ulimit -n 200; exec "$0" "$1"', process.execPath, file], {
    env: { PATH, BUN_BE_BUN: '1' },
    stderr: 'pipe',
  });
  const [stdout, stderr] = await Promise.all([full.stdout, full.stderr].map(one => new Response(one).text()));
  const said = stdout?.trimEnd().split('\n') ?? [];
  const words = 'no descriptors are left (EMFILE or ENFILE)';
  expect([await full.exited, stderr, said.length]).toEqual([0, '', 16]);
  expect([said.filter(one => one !== words && one !== '{}'), said[0], said.at(-1)]).toEqual([
    [],
    words,
    '{}',
  ]);
});

test('a busy file is tried again only while there is time', async () => {
  const left: number[] = [];
  const attempt = async (ms: number) => {
    left.push(ms);
    return { spawnError: 'ETXTBSY: text file is busy' };
  };
  // The next pause would last until after the deadline.
  const { spawnError } = await retryWhileBusy(attempt, 1_900);
  expect([spawnError, left.length, left.every(ms => ms > 0)]).toEqual([expect.any(String), 6, true]);
});
