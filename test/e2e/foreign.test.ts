// Do repair, set and gc cover attachments that another runtime made, as they are?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { addByHand, configure, deleteByHand, idOf, type Network, PORTS } from '../helpers/cnitool.ts';
import { filesBelow } from '../helpers/journal.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference } from '../helpers/skip.ts';

const BY_REFERENCE = { binDir: REFERENCE_BIN_DIR, capabilityArgs: PORTS };

async function catena(lab: Lab, ...argv: string[]) {
  return await lab.run(lab.host, [`${BIN_DIR}/catena`, ...argv], {
    env: { ...directories(lab.tmp), NETCONFPATH: `${lab.tmp}/net.d`, CNI_PATH: BIN_DIR },
    timeoutMs: 50_000,
  });
}

async function repair(lab: Lab, ...argv: string[]): Promise<Row> {
  const { exitCode, stdout } = await catena(lab, 'repair', '--json', ...argv);
  return { exitCode, ...JSON.parse(stdout) };
}

const cacheOf = ({ cache }: Network, container: Container) => `${cache}${idOf(container)}-eth0`;
const named = (container: Container) => ({ network: 'podnet', containerId: idOf(container), ifname: 'eth0' });

/** What is left of the pod: interfaces, leases, and files about it. */
async function leftOf(lab: Lab, network: Network, container: Container): Promise<unknown[]> {
  const links = await lab.ip(lab.host, 'link', 'show', 'type', 'veth');
  const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout.split('\n');
  const leases = fs.readdirSync(`${lab.tmp}/leases/podnet`).filter(name => /^[0-9.]+$/.test(name));
  const files = [cacheOf(network, container)].filter(file => fs.existsSync(file));
  const inside = (await lab.ip(container, 'link')).filter(({ ifname }) => ifname !== 'lo');
  return [...links, ...inside, ...leases, ...files, ...rules.filter(line => line.includes('10.88.0.2'))];
}

describeRoot(
  'an attachment of another runtime',
  () => {
    test.each(['0.4.0', '1.0.0'])(
      '[%s] made by the reference is restored by repair, and deleted by gc',
      async cniVersion => {
        await withHost(async lab => {
          const container = await lab.container();
          const network = configure(lab, cniVersion);
          await addByHand(lab, network, container, BY_REFERENCE);
          await lab.sysctl(container, 'net/core/somaxconn', 5);
          const found = (state: string) => ({
            recovered: [],
            attachments: [
              {
                ...named(container),
                plugins: [
                  { type: 'bridge', state: 'sound' },
                  // The reference's rules are in iptables, where ours would be sets of nf_tables: they will do.
                  { type: 'portmap', state: 'sound' },
                  { type: 'tuning', state },
                ],
              },
            ],
          });
          expect(await repair(lab, '--dry-run')).toMatchObject({ exitCode: 1, ...found('broken') });
          expect(await repair(lab, 'othernet')).toMatchObject({ attachments: [] });
          expect(await repair(lab, 'podnet')).toMatchObject({ exitCode: 0, ...found('mended') });
          expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe('321');
          expect(await catena(lab, 'check', 'podnet', container.path)).toMatchObject({
            exitCode: 0,
            stderr: '',
          });
          expect(await repair(lab)).toMatchObject({ exitCode: 0, ...found('sound') });
          expect(filesBelow(`${lab.tmp}/state/unsettled`)).toEqual([]);

          expect(await catena(lab, 'gc', 'podnet', '--all')).toMatchObject({ exitCode: 0, stderr: '' });
          expect(await leftOf(lab, network, container)).toEqual([]);
        });
      },
    );

    test('made by our plugins is changed by set, and deleted by its runtime', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const network = configure(lab, '1.0.0');
        await addByHand(lab, network, container, { binDir: BIN_DIR, capabilityArgs: {} });
        const mapping = ['--cap', JSON.stringify(PORTS)];
        expect(await catena(lab, 'set', container.path, 'podnet', ...mapping)).toMatchObject({
          exitCode: 0,
          stderr: '',
        });
        const cached = JSON.parse(fs.readFileSync(cacheOf(network, container), 'utf8'));
        expect(cached.capabilityArgs).toEqual(PORTS);
        await lab.run(lab.host, ['nft', 'flush', 'ruleset']);
        expect(await repair(lab)).toMatchObject({ exitCode: 0, attachments: [{ state: 'mended' }] });
        expect(await catena(lab, 'check', 'podnet', container.path)).toMatchObject({ exitCode: 0 });
        expect(filesBelow(`${lab.tmp}/state/unsettled`)).toEqual([]);
        await deleteByHand(lab, network, container, BIN_DIR);
        expect(await repair(lab)).toMatchObject({ exitCode: 0, attachments: [] });
        expect(await leftOf(lab, network, container)).toEqual([]);
      });
    });

    test('is not mended where it no longer exists or cannot be used, with the reason', async () => {
      await withHost(async lab => {
        const [strange, gone, bare, old] = await Promise.all(
          Array.from({ length: 4 }, () => lab.container()),
        );
        if (!strange || !gone || !bare || !old) throw new Error('Cannot make containers');
        const network = configure(lab, '1.0.0');
        for (const container of [strange, gone, bare, old])
          await addByHand(lab, network, container, { binDir: BIN_DIR, capabilityArgs: {} });
        // As after a DEL that left the cached result, and an ADD for another container in the same namespace.
        const kept = fs.readFileSync(cacheOf(network, strange));
        await deleteByHand(lab, network, strange, BIN_DIR);
        const another = ['--container-id', 'another'];
        expect(await catena(lab, 'add', 'podnet', strange.path, ...another)).toMatchObject({ exitCode: 0 });
        fs.writeFileSync(cacheOf(network, strange), kept);
        await lab.sysctl(strange, 'net/core/somaxconn', 5);
        await lab.ip(bare, 'link', 'delete', 'eth0');
        await lab.remove(gone);
        const { result } = JSON.parse(fs.readFileSync(cacheOf(network, old), 'utf8'));
        fs.writeFileSync(cacheOf(network, old), JSON.stringify(result));
        fs.writeFileSync(`${network.cache}torn-eth0`, '{"kind":');

        const { exitCode, attachments, damaged } = await repair(lab);
        expect(exitCode).toBe(1);
        // A result of libcni 0.7 under a name of more than three parts could belong to any attachment.
        expect(damaged).toEqual([
          expect.stringContaining(`podnet-${idOf(old)}-eth0": its name does not identify`),
          expect.stringContaining('podnet-torn-eth0'),
        ]);
        const of = (containerId: string) => attachments.find((one: Row) => one.containerId === containerId);
        expect(of(idOf(strange))).toMatchObject({ state: 'broken' });
        expect(of('another')).toMatchObject({ state: 'mended' });
        expect(of(idOf(gone))).toMatchObject({
          state: 'skipped',
          why: `its namespace "${gone.path}" no longer exists; DEL deletes it`,
        });
        expect(of(idOf(bare))).toMatchObject({ state: 'broken' });
      });
    });
  },
  requiresReference('bridge', 'host-local', 'portmap', 'tuning'),
);
