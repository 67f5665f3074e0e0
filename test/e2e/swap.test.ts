// Can a plugin be swapped on a node with running pods, and back again?
import { afterAll, beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import { join } from 'node:path';
import { compileBroken } from '../helpers/compare.ts';
import { withHost } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference, testNeeding } from '../helpers/skip.ts';
import {
  beginSwaps,
  DEADLINE_MS,
  endSwaps,
  isSame,
  NAMES,
  node,
  ours,
  tmp,
  wrapped,
} from '../helpers/swap-node.ts';

describeRoot(
  'catena swap',
  () => {
    beforeAll(async () => {
      beginSwaps();
      await compileBroken(join(tmp, 'broken'), 'forgotten-sysctl');
    });
    afterAll(endSwaps);

    testNeeding(
      "installs the reference's executable under a running pod, and ours again",
      async () => {
        await withHost(async lab => {
          const { swap, noted, check, link, chain, live, binDir, confDir } = await node(lab);
          const to = `${REFERENCE_BIN_DIR}/tuning`;
          const quick = ['--plugin', '1', '--to', to, '--scene', 'life'];

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
            '--plugin',
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

          // A list has got a version since that the kept executable does not know.
          const file = `${confDir}/20-othernet.conflist`;
          const text = fs.readFileSync(file, 'utf8');
          fs.writeFileSync(file, JSON.stringify({ ...JSON.parse(text), cniVersion: '1.1.0' }));
          const deaf = await swap('--plugin', 'tuning', '--undo');
          expect(deaf).toMatchObject({ exitCode: 1, stderr: '' });
          expect(deaf.stdout.replaceAll(/\s+/g, ' ')).toContain(
            'refused: the previous executable does not support the version of othernet (1.1.0), whose ADD would fail',
          );
          expect(isSame(link('tuning'), ours)).toBe(true);
          fs.writeFileSync(file, text);

          const planned = await swap('--plugin', 'tuning', '--undo', '--dry-run');
          expect(planned.stdout).toEndWith('planned\n');
          for (const file of [to, ours]) {
            expect(await swap('--plugin', 'tuning', '--undo')).toMatchObject({ exitCode: 0, stderr: '' });
            expect(isSame(link('tuning'), file)).toBe(true);
          }
          expect(fs.readdirSync(binDir).sort()).toEqual([...NAMES, 'catena-core'].sort());
          expect((await swap('--plugin', 'tuning', '--undo')).stderr).toContain('none is recorded in');
          // The history has each swap and each undo, and not what was refused or only planned.
          expect(await noted('SWAP')).toEqual(
            ['swapped', 'swapped', 'undone', 'undone'].map(outcome =>
              expect.objectContaining({
                ...{ by: 'command', code: 0, source: 'history' },
                message: expect.stringContaining(`"${link('tuning')}": ${outcome}`),
              }),
            ),
          );
          expect(await chain.run('del', live, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
        });
      },
      requiresReference('tuning'),
    );

    test('refuses a broken candidate, and reports what is wrong with it', async () => {
      await withHost(async lab => {
        const { swap, link, binDir } = await node(lab);
        const refused = await swap('--plugin', 'tuning', '--to', join(tmp, 'broken'), '--scene', 'life');
        expect(refused).toMatchObject({ exitCode: 1, stderr: '' });
        expect(refused.stdout).toContain('conformance: does not conform: ');
        expect(refused.stdout).toContain('ADD: container: sysctl net/core/somaxconn');
        expect(refused.stdout).toContain('refused: it breaks mandatory rules');
        expect(isSame(link('tuning'), ours)).toBe(true);
        expect(fs.readdirSync(binDir).sort()).toEqual([...NAMES, 'catena-core'].sort());
      });
    });

    testNeeding(
      'refuses a candidate that another network of the node could not call',
      async () => {
        await withHost(async lab => {
          const { swap, link, confDir } = await node(lab);
          const file = `${confDir}/20-othernet.conflist`;
          fs.writeFileSync(
            file,
            JSON.stringify({ ...JSON.parse(fs.readFileSync(file, 'utf8')), cniVersion: '1.1.0' }),
          );
          const to = ['--to', `${REFERENCE_BIN_DIR}/tuning`, '--accept-differences', '--scene', 'life'];
          const refused = await swap('--plugin', '1', ...to);
          expect(refused).toMatchObject({ exitCode: 1, stderr: '' });
          expect(refused.stdout.replaceAll(/\s+/g, ' ')).toContain(
            'refused: it does not support the version of othernet (1.1.0), whose ADD would fail: the candidate lists 0.1.0,',
          );
          expect(isSame(link('tuning'), ours)).toBe(true);
        });
      },
      requiresReference('tuning'),
    );

    test('--dry-run shows what it would do, and does nothing', async () => {
      await withHost(async lab => {
        const { swap, swapOfOther, link, binDir } = await node(lab);
        const other = wrapped(lab, 'other', ':');
        const planned = await swapOfOther(
          '--plugin',
          'tuning',
          '--to',
          other,
          '--scene',
          'life',
          '--dry-run',
        );
        expect(planned).toMatchObject({ exitCode: 0, stderr: '' });
        expect(planned.stdout).toContain(`2 a copy of the candidate is renamed to ${link('tuning')}`);
        expect(fs.readdirSync(binDir).sort()).toEqual([...NAMES, 'catena-core'].sort());
        expect((await swap('--plugin', 'tuning', '--to', ours)).stdout).toStartWith('same: ');
      });
    });

    testNeeding(
      'asks at a terminal, and takes an empty answer as no',
      async () => {
        await withHost(async lab => {
          const { argvOfOther, env, link } = await node(lab);
          const command = argvOfOther(
            '--plugin',
            'tuning',
            '--to',
            wrapped(lab, 'other', ':'),
            '--scene',
            'life',
          );
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
      [['--to', '/bin/true'], 2, '--plugin <type or index>'],
      [['--to', '/bin/true', '--undo', '--plugin', '1'], 2, 'Cannot use both --to and --undo'],
      [['--to', '/nonexistent', '--plugin', '1'], 1, 'it does not exist'],
      [['--to', '/bin/true', '--plugin', '7'], 1, 'Cannot use --plugin "7"'],
    ])('refuses %j', async (args, exitCode, gist) => {
      await withHost(async lab => {
        const { swap } = await node(lab);
        expect(await swap(...args)).toMatchObject({ exitCode, stderr: expect.stringContaining(gist) });
      });
    });
  },
  requires('unshare'),
);
