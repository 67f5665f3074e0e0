// Does a swap that fails, or whose plugin cannot delete what is attached, leave a node that works?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { writeChain } from '../helpers/chain.ts';
import { withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import {
  beginSwaps,
  copiesOf,
  DEADLINE_MS,
  endSwaps,
  isSame,
  NAMES,
  node,
  onLiveCheck,
  ours,
  refusal,
  wrapped,
} from '../helpers/swap-node.ts';

describeRoot(
  'catena swap, when something fails',
  () => {
    beforeAll(beginSwaps);
    afterAll(endSwaps);

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
          const quick = ['--plugin', 'portmap', '--scene', 'life'];

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
          const refused = await swap('--plugin', 'portmap', '--undo');
          expect(refused.exitCode).toBe(1);
          expect(refused.stdout).toContain(
            'refused: the previous executable may not be able to delete 1 attachment',
          );
          const undone = await swap('--plugin', 'portmap', '--undo', '--force');
          expect(undone.exitCode).toBe(1);
          expect(undone.stdout).toEndWith('undone: CHECK fails where it passed before\n');
          expect(fs.readlinkSync(link('portmap'))).toBe(`${REFERENCE_BIN_DIR}/portmap`);

          for (const pod of [one, two])
            expect(await other.run('del', pod, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
          // In a process id namespace of its own, GC cannot tell that what the reference left is unused, and would keep it.
          const all = { args: ['--all', '--foreign'] };
          expect(await other.run('gc', one, all)).toMatchObject({ exitCode: 0, stderr: '' });
          const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
          expect(rules).not.toMatch(/\b808[01]\b/);
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
          const { swap, noted, binDir, confDir, chain, live, link, list, env } = await node(lab);
          const [bridge, tuning] = list.plugins;
          const masked = { ...list, plugins: [{ ...bridge, ipMasq: true }, tuning] };
          fs.writeFileSync(`${confDir}/10-podnet.conflist`, JSON.stringify(masked));
          const pod = await lab.container();
          const own = writeChain(lab, masked);
          await own.add(pod, { binDir });
          const to = `${REFERENCE_BIN_DIR}/bridge`;
          const quick = ['--plugin', 'bridge', '--to', to, '--scene', 'life', '--accept-differences'];

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
          const place = [REFERENCE_BIN_DIR, binDir].map(dir => `"${dir}"`);
          expect(await noted('HANDOVER')).toMatchObject([
            {
              containerId: pod.id,
              ifname: 'eth0',
              by: 'command',
              code: 0,
              message: `to ${place.join(' or ')}`,
            },
          ]);
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

    test('restores the old executable when an attachment that was sound breaks', async () => {
      await withHost(async lab => {
        const { swap, check, link, binDir } = await node(lab);
        const picky = wrapped(lab, 'picky', onLiveCheck(refusal));
        const quick = ['--plugin', 'tuning', '--to', picky, '--scene', 'life'];
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
          const command = argv('--plugin', 'tuning', '--to', slow, '--scene', 'life');
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
        const [left = '', ...others] = copiesOf(lab.tmp, killed.pid);
        expect(others).toEqual([]);
        // Anyone can make a directory of that name where all have their temporary files, with links in it.
        const foreign = `${lab.tmp}/${left}x`;
        fs.mkdirSync(foreign);
        fs.chownSync(foreign, 65_534, 65_534);
        expect(await swap('--plugin', 'tuning', '--undo')).toMatchObject({ exitCode: 0, stderr: '' });
        expect(isSame(link('tuning'), ours)).toBe(true);

        for (const file of [reached, goOn]) fs.rmSync(file);
        const ended = await begin();
        ended.kill('SIGTERM');
        await ended.exited;
        expect(isSame(link('tuning'), ours)).toBe(true);
        expect([killed, ended].flatMap(({ pid }) => copiesOf(lab.tmp, pid))).toEqual([`${left}x`]);
        fs.writeFileSync(goOn, '');
        expect(await check()).toBe('');
      });
    });
  },
  requires('unshare'),
);
