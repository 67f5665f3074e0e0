// Are macvlans handed over to the reference, and those refused that its DEL would leave open to the host?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { directories, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference, requiresUpperKind } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(120_000));

function listOf(lab: Lab, name: string, net: number, more: object = {}) {
  const subnet = `10.${net}.0.0/24`;
  const ipam = { type: 'host-local', subnet, rangeStart: `10.${net}.0.10`, dataDir: `${lab.tmp}/leases` };
  return { cniVersion: '1.0.0', name, plugins: [{ type: 'macvlan', master: 'outside0', ipam, ...more }] };
}

describeRoot(
  'catena handover of macvlan',
  () => {
    test('one with "hostAccess" is refused and keeps it; one without is handed over, and deleted by the reference', async () => {
      await withHost(async lab => {
        await lab.outside();
        const env = { ...directories(lab.tmp), PATH: process.env.PATH ?? '' };
        const handOver = (...args: string[]) =>
          lab.run(lab.host, [`${BIN_DIR}/catena`, 'handover', ...args, '--to', REFERENCE_BIN_DIR], {
            env,
            timeoutMs: 60_000,
          });
        const [plain, open] = [listOf(lab, 'plain', 202), listOf(lab, 'open', 201, { hostAccess: true })];
        const [one, two] = [await lab.container(), await lab.container()];
        const before = await lab.dump(lab.host, { ignoreTables: ['inet catena_host_access'] });
        await writeChain(lab, plain).add(one);
        const chain = writeChain(lab, open);
        await chain.add(two);
        expect(await ping(lab, lab.host, '10.201.0.10')).toBe(true);

        for (const args of [[], ['--force']]) {
          const refused = await handOver(...args);
          expect(refused).toMatchObject({ exitCode: 1, stderr: '' });
          expect(refused.stdout).toContain('only our DEL ends the host\'s access to it ("hostAccess")');
          expect(await ping(lab, lab.host, '10.201.0.10')).toBe(true);
        }
        expect(await handOver('plain')).toMatchObject({ exitCode: 0, stderr: '' });

        const conf = { ...plain.plugins[0], cniVersion: plain.cniVersion, name: plain.name };
        const deleted = await lab.plugin('macvlan', {
          command: 'DEL',
          conf,
          container: one,
          binDir: REFERENCE_BIN_DIR,
        });
        expect(deleted).toMatchObject({ exitCode: 0 });
        expect((await chain.run('del', two)).exitCode).toBe(0);
        expect(await chain.leases()).toEqual([]);
        expect(await lab.dump(lab.host, { ignoreTables: ['inet catena_host_access'] })).toEqual(before);
      });
    });
  },
  requiresReference('macvlan', 'host-local'),
  requiresUpperKind('macvlan'),
);
