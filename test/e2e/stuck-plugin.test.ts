// What happens to a hanging third-party plugin whose runner has died?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, directories, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

setDefaultTimeout(deadline(120_000));

/** Longer than any test waits; only signals end it, and the first one it ignores. */
const SCRIPT = `#!/bin/sh
cat > /dev/null
[ "$CNI_COMMAND" = ADD ] || exit 0
trap '' TERM
echo $$ > "$STUCK_PID"
while :; do sleep 600; done
`;

/** A directory of executables in which `stuck` hangs at ADD. */
function binDirWithStuck(lab: Lab): string {
  const dir = `${lab.tmp}/bin`;
  fs.mkdirSync(dir);
  for (const name of ['bridge', 'host-local', 'catena'])
    fs.symlinkSync(`${BIN_DIR}/${name}`, `${dir}/${name}`);
  fs.writeFileSync(`${dir}/stuck`, SCRIPT, { mode: 0o755 });
  return dir;
}

function isAlive(pid: number): boolean {
  return (
    fs.existsSync(`/proc/${pid}/stat`) && !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))
  );
}

/** Begins an ADD that hangs in its second plugin, and kills who runs it. @returns the process of the plugin */
async function addAndDie(
  lab: Lab,
  argv: readonly string[],
  env: Record<string, string>,
  stdin = '',
): Promise<number> {
  const file = `${lab.tmp}/pid-${env.NAME}`;
  const all = Object.entries({ ...directories(lab.tmp), ...env, STUCK_PID: file }).map(pair =>
    pair.join('='),
  );
  fs.writeFileSync(`${lab.tmp}/stdin`, stdin);
  const runner = lab.start(lab.host, ['sh', '-c', `exec env "$@" < ${lab.tmp}/stdin`, 'sh', ...all, ...argv]);
  await until(() => fs.existsSync(file) && fs.readFileSync(file, 'utf8').endsWith('\n'));
  runner.kill('SIGKILL');
  await runner.exited;
  return Number(fs.readFileSync(file, 'utf8'));
}

async function hasNothing(lab: Lab, container: Container): Promise<void> {
  expect((await lab.run(container, ['ip', 'link', 'show', 'dev', 'eth0'])).exitCode).not.toBe(0);
  const leases = fs.readdirSync(`${lab.tmp}/leases/podnet`).filter(name => /^[0-9a-f]+[.:]/.test(name));
  const texts = leases.map(name => fs.readFileSync(`${lab.tmp}/leases/podnet/${name}`, 'utf8'));
  expect(texts.filter(text => text.startsWith(container.id))).toEqual([]);
}

describeRoot('a plugin that hangs after its runner died', () => {
  test.each([
    ['DEL', ({ path, id }: Container) => ({ verb: 'del', more: [path, '--container-id', id] })],
    ['GC', () => ({ verb: 'gc', more: ['--all'] })],
    ['repair', () => ({ verb: 'repair', more: [] })],
  ])('is killed at the deadline that it was given, and %s continues', async (_, how) => {
    await withHost(async lab => {
      const { plugins, ...head } = fullChain(lab);
      const chain = writeChain(lab, { ...head, plugins: [plugins[0], { type: 'stuck' }] });
      const [container, other] = [await lab.container(), await lab.container()];
      const binDir = binDirWithStuck(lab);
      const file = ['--file', `${lab.tmp}/podnet.conflist`, '--bin-dir', binDir];
      const add = [`${BIN_DIR}/catena`, 'add', 'podnet', container.path, '--container-id', container.id];
      const stuck = await addAndDie(lab, [...add, ...file, '--timeout', '3'], { NAME: 'stuck' });
      // One that looks like it and is another container's stays.
      const env = { CNI_CONTAINERID: other.id, CNI_IFNAME: 'eth0', CNI_COMMAND: 'ADD', NAME: 'other' };
      const bystander = lab.start(lab.host, [
        'env',
        ...Object.entries(env).map(pair => pair.join('=')),
        'sleep',
        '600',
      ]);

      const { verb, more } = how(container);
      const run = () => {
        const target = verb === 'repair' ? [] : ['podnet', ...file];
        return lab.run(lab.host, [`${BIN_DIR}/catena`, verb, ...target, ...more], {
          env: directories(lab.tmp),
          timeoutMs: 30_000,
        });
      };
      await until(async () => (await run()).exitCode === 0 && !isAlive(stuck), { withinMs: 25_000 });
      await hasNothing(lab, container);
      expect(fs.existsSync(`${lab.tmp}/state/unsettled/podnet/${container.id}:eth0`)).toBe(false);
      expect(isAlive(bystander.pid)).toBe(true);
      expect(chain.name).toBe('podnet');
    });
  });

  test('is waited for until its deadline: DEL fails with code 11, and says when the plugin is killed', async () => {
    await withHost(async lab => {
      const { plugins, ...head } = fullChain(lab);
      const chain = writeChain(lab, { ...head, plugins: [plugins[0], { type: 'stuck' }] });
      const container = await lab.container();
      const binDir = binDirWithStuck(lab);
      const add = [`${BIN_DIR}/catena`, 'add', 'podnet', container.path, '--container-id', container.id];
      const file = ['--file', `${lab.tmp}/podnet.conflist`, '--bin-dir', binDir];
      const stuck = await addAndDie(lab, [...add, ...file], { NAME: 'stuck' });
      const { exitCode, stderr } = await chain.run('del', container, { binDir });
      expect([exitCode, stderr]).toEqual([1, expect.stringContaining('code: 11')]);
      // The plugin, or a child of it, which has its environment.
      const [, pid] = /process (\d+), a plugin whose runner died, is still working on it/.exec(stderr) ?? [];
      const groupOf = (one: number) =>
        fs
          .readFileSync(`/proc/${one}/stat`, 'utf8')
          .replace(/^.*\) /, '')
          .split(' ')[2];
      expect(groupOf(Number(pid))).toBe(groupOf(stuck));
      expect(stderr).toContain('it is ended at its deadline');
      expect(isAlive(stuck)).toBe(true);
      process.kill(-stuck, 'SIGKILL');
    });
  });
});
