// How long does a command wait for a process that stopped in the middle of its work, and does it name that process?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { fullChain, writeChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { intentOf } from '../helpers/journal.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

/** All waits at once, since nothing else runs during them. */
const PATIENCE_MS = 120_000;

const DONE = { exitCode: 0, stderr: '' };

interface Held {
  readonly lab: Lab;
  readonly container: Container;
  run(verb: string): Promise<Finished>;
}

async function withChain(body: (held: Held) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    const chain = writeChain(lab, fullChain(lab));
    const container = await lab.container();
    await body({ lab, container, run: verb => chain.run(verb, container) });
  });
}

/** A process that has a lock, and is stopped. */
async function stopWithLock(lab: Lab, file: string): Promise<Bun.Subprocess> {
  fs.mkdirSync(path.dirname(file), { recursive: true });
  const module = JSON.stringify(path.join(ROOT, 'src/sys/flock.ts'));
  const program = `
    const { withFlock } = await import(${module});
    withFlock(process.argv.at(-1), () => { process.stdout.write('ready'); process.kill(process.pid, 'SIGSTOP'); Bun.sleepSync(1e6); });`;
  return stopped(lab, [process.execPath, '-e', program, file]);
}

/** A process that works on an attachment, and is stopped. */
async function stopWithClaim(lab: Lab, { id, path: netns }: Container): Promise<Bun.Subprocess> {
  const [lock, store] = ['lock', 'notes'].map(name =>
    JSON.stringify(path.join(ROOT, `src/attachments/${name}.ts`)),
  );
  const { runner: _, ...intent } = intentOf({
    network: 'podnet',
    containerId: id,
    netns,
    cacheDir: `${lab.tmp}/cni`,
  });
  const program = `
    const { createNote } = await import(${store});
    const { takeLock } = await import(${lock});
    const intent = ${JSON.stringify(intent)};
    const { runner } = takeLock({ stateDir: process.argv.at(-1) }, intent, 'add');
    createNote(process.argv.at(-1), { ...intent, runner });
    process.stdout.write('ready');
    process.kill(process.pid, 'SIGSTOP');`;
  return stopped(lab, [process.execPath, '-e', program, `${lab.tmp}/state`]);
}

function expectNamed({ exitCode, stderr }: Finished, lock: string, { pid }: Bun.Subprocess): void {
  expect(exitCode).toBe(1);
  expect(stderr).toContain(`${lock}": process ${pid} (`);
  expect(stderr).toContain('did not release it within');
  expect(stderr).toContain('code: 11');
}

async function stopped(lab: Lab, argv: string[]): Promise<Bun.Subprocess> {
  const child = lab.start(lab.host, argv);
  expect(new TextDecoder().decode((await child.stdout.getReader().read()).value)).toBe('ready');
  while (!/^State:\tT/m.test(fs.readFileSync(`/proc/${child.pid}/status`, 'utf8'))) await Bun.sleep(10);
  return child;
}

describeRoot('a stopped process', () => {
  test(
    'that holds a lock is waited for up to a limit, and named; one that holds an attachment is ended',
    async () => {
      await Promise.all([
        withChain(async ({ lab, run }) => {
          expect(await run('add')).toMatchObject({ exitCode: 0 });
          const child = await stopWithLock(lab, `${lab.tmp}/leases/podnet/lock`);
          expectNamed(await run('check'), 'leases/podnet/lock', child);
          child.kill('SIGKILL');
          await child.exited;
          for (const verb of ['check', 'del']) expect(await run(verb)).toMatchObject(DONE);
        }),
        withChain(async ({ lab, run }) => {
          expect(await run('add')).toMatchObject({ exitCode: 0 });
          expect(await run('del')).toMatchObject(DONE);
          const [lock = ''] = fs.readdirSync(`${lab.tmp}/run`).filter(name => /^bridge-.*\.lock$/.test(name));
          const child = await stopWithLock(lab, `${lab.tmp}/run/${lock}`);
          expectNamed(await run('add'), lock, child);
          child.kill('SIGKILL');
          await child.exited;
          expect(await run('add')).toMatchObject({ exitCode: 0 });
        }),
        withChain(async ({ lab, container, run }) => {
          const child = await stopWithClaim(lab, container);
          const { exitCode, stderr } = await run('del');
          expect([exitCode, stderr]).toEqual([
            0,
            expect.stringContaining(`Ended process ${child.pid}, which was stopped while it worked on`),
          ]);
          await child.exited;
          expect(child.signalCode).toBe('SIGKILL');
        }),
      ]);
    },
    PATIENCE_MS,
  );
});
