// Can a plugin be swapped on a node with running pods, and back again, whatever fails?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { writeChain } from '../helpers/chain.ts';
import { type Container, directories, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';

const DEADLINE_MS = 120_000;
const NAMES = ['bridge', 'host-local', 'tuning'];

let tmp = '';
let ours = '';

/** A node with one pod, and the executables that its runtimes call: fronts and the Bun program, as installed. */
async function node(lab: Lab) {
  const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
  const list = {
    cniVersion: '1.0.0',
    name: 'podnet',
    plugins: [
      { type: 'bridge', bridge: 'br0', isGateway: true, ipam },
      { type: 'tuning', sysctl: { 'net.core.somaxconn': '321' }, dataDir: `${lab.tmp}/tuning` },
    ],
  };
  const chain = writeChain(lab, list);
  const [confDir, binDir] = [`${lab.tmp}/net.d`, `${lab.tmp}/bin`];
  for (const dir of [confDir, binDir]) fs.mkdirSync(dir);
  fs.writeFileSync(`${confDir}/10-podnet.conflist`, JSON.stringify(list));
  const other = { ...list, name: 'othernet', plugins: [{ type: 'loopback' }, { type: 'tuning', mtu: 1400 }] };
  fs.writeFileSync(`${confDir}/20-othernet.conflist`, JSON.stringify(other));
  for (const name of NAMES) fs.linkSync(ours, `${binDir}/${name}`);
  fs.linkSync(join(tmp, 'catena-core'), `${binDir}/catena-core`);
  const live: Container = { ...(await lab.container()), id: 'live-1' };
  await chain.add(live, { binDir });
  const argv = (...more: string[]) => {
    return [`${BIN_DIR}/catena`, 'swap', 'podnet', '--bin-dir', binDir, '--conf-dir', confDir, ...more];
  };
  // A swap removes what killed ones have left, so those of other tests need another place.
  const env = { ...directories(lab.tmp), PATH: process.env.PATH ?? '', TMPDIR: lab.tmp };
  const swap = (...more: string[]) => lab.run(lab.host, argv(...more), { env, timeoutMs: DEADLINE_MS });
  const check = async () => (await chain.run('check', live, { binDir })).stderr;
  return {
    swap,
    check,
    argv,
    env,
    live,
    binDir,
    confDir,
    list,
    chain,
    link: (name: string) => `${binDir}/${name}`,
  };
}

/** Our link behind a script, which does something else first. */
function wrapped(lab: Lab, name: string, first: string): string {
  const file = `${lab.tmp}/${name}`;
  fs.writeFileSync(file, `#!/bin/sh\n${first}\nexec ${BIN_DIR}/tuning\n`, { mode: 0o755 });
  return file;
}

const onLiveCheck = (what: string) => `case "$CNI_COMMAND $CNI_CONTAINERID" in 'CHECK live'*) ${what};; esac`;
const refusal = `echo '{"cniVersion":"1.0.0","code":100,"msg":"not mine"}'; exit 1`;
/** What a swap puts aside while it examines; `nsenter` and `env` become the command. */
const copiesOf = (dir: string, pid: number) =>
  fs.readdirSync(dir).filter(name => name.startsWith(`catena-swap-${pid}-`));
const isSame = (path: string, other: string) => fs.readFileSync(path).equals(fs.readFileSync(other));

describeRoot(
  'catena swap',
  () => {
    beforeAll(async () => {
      tmp = fs.mkdtempSync(join(tmpdir(), 'cat-swap-'));
      ours = join(tmp, 'ours');
      fs.copyFileSync(`${BIN_DIR}/catena`, ours, fs.constants.COPYFILE_FICLONE);
      fs.copyFileSync(`${BIN_DIR}/catena-core`, join(tmp, 'catena-core'), fs.constants.COPYFILE_FICLONE);
      await Bun.build({
        entrypoints: [join(import.meta.dir, '../fixtures/broken-plugins.ts')],
        target: 'bun',
        define: { WRONG: '"forgotten-sysctl"' },
        compile: { outfile: join(tmp, 'broken') },
      });
    });
    afterAll(() => fs.rmSync(tmp, { recursive: true, force: true }));

    testNeeding(
      "installs the reference's executable under a running pod, and ours again",
      async () => {
        await withHost(async lab => {
          const { swap, check, link, chain, live, binDir } = await node(lab);
          const to = `${REFERENCE_BIN_DIR}/tuning`;
          const quick = ['--link', '1', '--to', to, '--scene', 'life'];

          const refused = await swap(...quick);
          expect(refused).toMatchObject({ exitCode: 1, stderr: '' });
          expect(refused.stdout).toContain('called by     podnet 1, othernet 1\n');
          expect(refused.stdout).toContain('same file     bridge, host-local: they are not changed\n');
          expect(refused.stdout).toContain('conformance: conforms: ');
          expect(refused.stdout).toEndWith('use --ignore for what is intended, or --accept-differences\n');
          expect(isSame(link('tuning'), ours)).toBe(true);

          const swapped = await swap(...quick, '--accept-differences', '--json');
          expect(swapped).toMatchObject({ exitCode: 0, stderr: '' });
          expect(JSON.parse(swapped.stdout)).toMatchObject({
            outcome: 'swapped',
            conformance: { ok: true },
            comparison: { same: false },
            before: [{ network: 'podnet', containerId: 'live-1', ifname: 'eth0', state: 'sound' }],
            worse: [],
          });
          expect(isSame(link('tuning'), to)).toBe(true);
          for (const name of ['bridge', 'host-local']) expect(isSame(link(name), ours)).toBe(true);
          expect(await check()).toBe('');
          expect((await swap()).stdout).toMatch(/^ {2}to undo {7}\S+ \/usr\/lib\/cni\/tuning$/m);

          // A name of the one file again, so that its chains need no second process.
          const back = await swap(
            '--link',
            'tuning',
            '--to',
            ours,
            '--scene',
            'life',
            '--accept-differences',
          );
          expect(back).toMatchObject({ exitCode: 0, stderr: '' });
          expect(fs.statSync(link('tuning')).ino).toBe(fs.statSync(link('bridge')).ino);
          expect(await check()).toBe('');

          const planned = await swap('--link', 'tuning', '--undo', '--dry-run');
          expect(planned.stdout).toEndWith('planned\n');
          for (const file of [to, ours]) {
            expect(await swap('--link', 'tuning', '--undo')).toMatchObject({ exitCode: 0, stderr: '' });
            expect(isSame(link('tuning'), file)).toBe(true);
          }
          expect(fs.readdirSync(binDir).sort()).toEqual([...NAMES, 'catena-core'].sort());
          expect((await swap('--link', 'tuning', '--undo')).stderr).toContain('none is recorded in');
          expect(await chain.run('del', live, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
        });
      },
      requiresReference('tuning'),
    );

    testNeeding(
      'takes over the ports of pods that the reference attached, and releases none that it cannot see',
      async () => {
        await withHost(async lab => {
          const { swap, binDir, confDir, chain, live, link, list } = await node(lab);
          const portmap = { type: 'portmap', capabilities: { portMappings: true } };
          const mapped = { ...list, name: 'mapped', plugins: [list.plugins[0], portmap] };
          fs.writeFileSync(`${confDir}/10-podnet.conflist`, JSON.stringify({ ...mapped, name: 'podnet' }));
          fs.symlinkSync(`${REFERENCE_BIN_DIR}/portmap`, link('portmap'));
          const ports = (hostPort: number) => {
            return { portMappings: [{ hostPort, containerPort: 80, protocol: 'tcp' }] };
          };
          const other = writeChain(lab, mapped);
          const [one, two] = [await lab.container(), await lab.container()];
          await other.add(one, { binDir, cap: ports(8080) });
          const quick = ['--link', 'portmap', '--scene', 'life'];

          const taken = await swap(...quick, '--to', ours, '--accept-differences', '--json');
          expect(JSON.parse(taken.stdout)).toMatchObject({
            outcome: 'swapped',
            before: [{ network: 'mapped', containerId: one.id }],
            worse: [],
          });
          expect(await other.run('check', one, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });

          // The reference would not find what ours puts into nf_tables.
          await other.add(two, { binDir, cap: ports(8081) });
          const back = await swap(...quick, '--to', `${REFERENCE_BIN_DIR}/portmap`, '--force', '--json');
          expect(back.exitCode).toBe(1);
          const { outcome, worse } = JSON.parse(back.stdout);
          expect(outcome).toBe('put back');
          const problem = expect.stringContaining('could not check ipv4 dnat');
          expect(worse).toContainEqual(expect.objectContaining({ containerId: two.id, problem }));
          expect(isSame(link('portmap'), ours)).toBe(true);
          // Nor would it delete that.
          const refused = await swap('--link', 'portmap', '--undo');
          expect(refused.exitCode).toBe(1);
          expect(refused.stdout).toContain(
            'refused: the previous executable may not be able to delete 1 attachment',
          );
          const undone = await swap('--link', 'portmap', '--undo', '--force');
          expect(undone.exitCode).toBe(1);
          expect(undone.stdout).toEndWith('undone: CHECK fails where it passed before\n');
          expect(fs.readlinkSync(link('portmap'))).toBe(`${REFERENCE_BIN_DIR}/portmap`);

          for (const pod of [one, two])
            expect(await other.run('del', pod, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
          // In a process id namespace of its own, GC cannot tell that what the reference left is unused, and would keep it.
          const all = { args: ['--all', '--foreign'] };
          expect(await other.run('gc', one, all)).toMatchObject({ exitCode: 0, stderr: '' });
          const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
          expect(rules).not.toMatch(/808[01]/);
          expect(await chain.run('del', live, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
        });
      },
      requiresReference('portmap'),
      requires('iptables', 'nft'),
    );

    testNeeding(
      'refuses an executable that cannot delete attachments of ours until they are handed over',
      async () => {
        await withHost(async lab => {
          const { swap, binDir, confDir, chain, live, link, list, env } = await node(lab);
          const [bridge, tuning] = list.plugins;
          const masked = { ...list, plugins: [{ ...bridge, ipMasq: true }, tuning] };
          fs.writeFileSync(`${confDir}/10-podnet.conflist`, JSON.stringify(masked));
          const pod = await lab.container();
          const own = writeChain(lab, masked);
          await own.add(pod, { binDir });
          const to = `${REFERENCE_BIN_DIR}/bridge`;
          const quick = ['--link', 'bridge', '--to', to, '--scene', 'life', '--accept-differences'];

          const refused = await swap(...quick);
          expect(refused).toMatchObject({ exitCode: 1, stderr: '' });
          expect(refused.stdout).toContain('refused: its DEL fails for current attachments (bridge: ');
          expect(refused.stdout).toContain(
            `run "catena handover --to ${REFERENCE_BIN_DIR} --to ${binDir}" first`,
          );
          expect(isSame(link('bridge'), ours)).toBe(true);

          const places = ['--to', REFERENCE_BIN_DIR, '--to', binDir];
          const handed = await lab.run(lab.host, [`${BIN_DIR}/catena`, 'handover', ...places], {
            env,
            timeoutMs: DEADLINE_MS,
          });
          expect(handed).toMatchObject({ exitCode: 0, stderr: '' });
          expect(handed.stdout).toContain('attachments: 1 handed over, 0 pending, 1 ready, 0 refused');
          expect(await swap(...quick)).toMatchObject({ exitCode: 0, stderr: '' });
          expect(isSame(link('bridge'), to)).toBe(true);
          for (const [one, by] of [
            [pod, own],
            [live, chain],
          ] as const)
            expect(await by.run('del', one, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
          const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
          expect(rules).not.toMatch(/10\.88\.0\.[23]\b/);
        });
      },
      requiresReference('bridge'),
      requires('iptables', 'nft'),
    );

    test('refuses a broken candidate, and reports what is wrong with it', async () => {
      await withHost(async lab => {
        const { swap, link, binDir } = await node(lab);
        const refused = await swap('--link', 'tuning', '--to', join(tmp, 'broken'), '--scene', 'life');
        expect(refused).toMatchObject({ exitCode: 1, stderr: '' });
        expect(refused.stdout).toContain('conformance: does not conform: ');
        expect(refused.stdout).toContain('ADD: container: sysctl net/core/somaxconn');
        expect(refused.stdout).toContain('refused: it breaks mandatory rules');
        expect(isSame(link('tuning'), ours)).toBe(true);
        expect(fs.readdirSync(binDir).sort()).toEqual([...NAMES, 'catena-core'].sort());
      });
    });

    test('--dry-run shows what it would do, and does nothing', async () => {
      await withHost(async lab => {
        const { swap, link, binDir } = await node(lab);
        const other = wrapped(lab, 'other', ':');
        const planned = await swap('--link', 'tuning', '--to', other, '--scene', 'life', '--dry-run');
        expect(planned).toMatchObject({ exitCode: 0, stderr: '' });
        expect(planned.stdout).toContain(`2 a copy of the candidate is renamed to ${link('tuning')}`);
        expect(fs.readdirSync(binDir).sort()).toEqual([...NAMES, 'catena-core'].sort());
        expect((await swap('--link', 'tuning', '--to', ours)).stdout).toStartWith('same: ');
      });
    });

    test('restores the old executable when an attachment that was sound breaks', async () => {
      await withHost(async lab => {
        const { swap, check, link, binDir } = await node(lab);
        const picky = wrapped(lab, 'picky', onLiveCheck(refusal));
        const quick = ['--link', 'tuning', '--to', picky, '--scene', 'life'];
        const swapped = await swap(...quick);
        expect(swapped.stdout).toContain('podnet live-1 eth0: not mine\n');
        expect(swapped.stdout).toEndWith('put back: CHECK fails where it passed before\n');
        expect(swapped.exitCode).toBe(1);
        expect(isSame(link('tuning'), ours)).toBe(true);
        expect(fs.readdirSync(binDir).sort()).toEqual([...NAMES, 'catena-core'].sort());
        expect(await check()).toBe('');

        expect(await swap(...quick, '--keep')).toMatchObject({ exitCode: 1, stderr: '' });
        expect(isSame(link('tuning'), picky)).toBe(true);
        expect(await check()).toContain('not mine');
      });
    });

    test('killed while it verifies, it can be undone; ended, it undoes itself', async () => {
      await withHost(async lab => {
        const { swap, check, argv, link, env: own } = await node(lab);
        const [reached, goOn] = [`${lab.tmp}/reached`, `${lab.tmp}/go-on`];
        const wait = `touch ${reached}; until [ -e ${goOn} ]; do sleep 0.05; done`;
        const slow = wrapped(lab, 'slow', onLiveCheck(wait));
        const env = Object.entries(own).map(([name, value]) => `${name}=${value}`);
        const begin = async () => {
          const command = argv('--link', 'tuning', '--to', slow, '--scene', 'life');
          const child = lab.start(lab.host, ['env', ...env, ...command]);
          while (!fs.existsSync(reached) && child.exitCode === null) await Bun.sleep(20);
          expect(isSame(link('tuning'), slow)).toBe(true);
          return child;
        };

        const killed = await begin();
        killed.kill('SIGKILL');
        await killed.exited;
        fs.writeFileSync(goOn, '');
        expect(await check()).toBe('');
        expect(copiesOf(lab.tmp, killed.pid)).toHaveLength(1);
        expect(await swap('--link', 'tuning', '--undo')).toMatchObject({ exitCode: 0, stderr: '' });
        expect(isSame(link('tuning'), ours)).toBe(true);

        for (const file of [reached, goOn]) fs.rmSync(file);
        const ended = await begin();
        ended.kill('SIGTERM');
        await ended.exited;
        expect(isSame(link('tuning'), ours)).toBe(true);
        expect([killed, ended].flatMap(({ pid }) => copiesOf(lab.tmp, pid))).toEqual([]);
        fs.writeFileSync(goOn, '');
        expect(await check()).toBe('');
      });
    });

    testNeeding(
      'asks at a terminal, and takes an empty answer as no',
      async () => {
        await withHost(async lab => {
          const { argv, env, link } = await node(lab);
          const command = argv('--link', 'tuning', '--to', wrapped(lab, 'other', ':'), '--scene', 'life');
          const atTerminal = (stdin: string) => {
            const typed = ['script', '--quiet', '--return', '--command', command.join(' '), '/dev/null'];
            return lab.run(lab.host, typed, {
              env: { ...env, SHELL: '/bin/sh' },
              stdin,
              timeoutMs: DEADLINE_MS,
            });
          };
          const declined = await atTerminal('\n');
          expect(declined.stdout).toContain('continue? [y/N]');
          expect(declined.exitCode).toBe(1);
          expect(isSame(link('tuning'), ours)).toBe(true);
          expect(await atTerminal('y\n')).toMatchObject({ exitCode: 0 });
          expect(isSame(link('tuning'), ours)).toBe(false);
        });
      },
      requires('script'),
    );

    test.each([
      [['--to', '/bin/true'], 2, '--link <type or index>'],
      [['--to', '/bin/true', '--undo', '--link', '1'], 2, 'Cannot use both --to and --undo'],
      [['--to', '/nonexistent', '--link', '1'], 1, 'it does not exist'],
      [['--to', '/bin/true', '--link', '7'], 1, 'Cannot use --link "7"'],
    ])('refuses %j', async (args, exitCode, gist) => {
      await withHost(async lab => {
        const { swap } = await node(lab);
        expect(await swap(...args)).toMatchObject({ exitCode, stderr: expect.stringContaining(gist) });
      });
    });
  },
  requires('unshare'),
);
