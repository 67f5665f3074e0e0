// Do repair and GC cover attachments that another runtime made, once they are adopted?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { expectAnswer } from '../helpers/answer.ts';
import { addByHand, configure, deleteByHand, idOf, type Network, PORTS } from '../helpers/cnitool.ts';
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

async function adopt(lab: Lab, ...argv: string[]): Promise<Row> {
  const { exitCode, stdout } = await catena(lab, 'adopt', '--json', ...argv);
  return { exitCode, ...expectAnswer('AdoptionReport', JSON.parse(stdout)) };
}

const recordOf = (lab: Lab, container: Container) =>
  `${lab.tmp}/state/attachments/podnet/${idOf(container)}:eth0`;
const cacheOf = ({ cache }: Network, container: Container) => `${cache}${idOf(container)}-eth0`;
const named = (container: Container) => ({ network: 'podnet', containerId: idOf(container), ifname: 'eth0' });

/** What is left of the pod: interfaces, leases, and files about it. */
async function leftOf(lab: Lab, network: Network, container: Container): Promise<unknown[]> {
  const links = await lab.ip(lab.host, 'link', 'show', 'type', 'veth');
  const rules = (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout.split('\n');
  const leases = fs.readdirSync(`${lab.tmp}/leases/podnet`).filter(name => /^[0-9.]+$/.test(name));
  const files = [recordOf(lab, container), cacheOf(network, container)].filter(file => fs.existsSync(file));
  const inside = (await lab.ip(container, 'link')).filter(({ ifname }) => ifname !== 'lo');
  return [...links, ...inside, ...leases, ...files, ...rules.filter(line => line.includes('10.88.0.2'))];
}

describeRoot(
  'catena adopt',
  () => {
    test.each(['0.4.0', '1.0.0'])(
      '[%s] adopts an attachment of the reference, which repair then restores and gc deletes',
      async cniVersion => {
        await withHost(async lab => {
          const container = await lab.container();
          const network = configure(lab, cniVersion);
          await addByHand(lab, network, container, BY_REFERENCE);

          const adopted = {
            exitCode: 0,
            attachments: [{ ...named(container), state: 'adopted' }],
            damaged: [],
          };
          expect(await adopt(lab, '--dry-run')).toEqual(adopted);
          expect(fs.existsSync(recordOf(lab, container))).toBe(false);
          expect(await adopt(lab, 'othernet')).toMatchObject({ attachments: [] });
          expect(await adopt(lab, 'podnet')).toEqual(adopted);
          expect(await adopt(lab)).toMatchObject({ attachments: [{ state: 'known' }] });

          await lab.sysctl(container, 'net/core/somaxconn', 5);
          const repaired = await catena(lab, 'repair', '--json');
          expect(JSON.parse(repaired.stdout)).toMatchObject({
            recovered: [],
            attachments: [
              {
                ...named(container),
                state: 'mended',
                links: [
                  { link: 'bridge', state: 'sound' },
                  // The reference's rules are in iptables, where ours would be sets of nf_tables: they will do.
                  { link: 'portmap', state: 'sound' },
                  { link: 'tuning', state: 'mended' },
                ],
              },
            ],
          });
          expect(await lab.sysctl(container, 'net/core/somaxconn')).toBe('321');
          expect(await catena(lab, 'check', 'podnet', container.path)).toMatchObject({
            exitCode: 0,
            stderr: '',
          });

          expect(await catena(lab, 'gc', 'podnet', '--all')).toMatchObject({ exitCode: 0, stderr: '' });
          expect(await leftOf(lab, network, container)).toEqual([]);
        });
      },
    );

    test('keeps an adopted attachment after the cache entry of the other runtime is lost', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const network = configure(lab, '1.0.0');
        await addByHand(lab, network, container, BY_REFERENCE);
        await adopt(lab);
        fs.rmSync(cacheOf(network, container));
        fs.rmSync(network.file);
        const { attachments } = JSON.parse((await catena(lab, 'repair', '--json')).stdout);
        expect(attachments).toMatchObject([{ state: 'sound' }]);
        // It is that runtime's, which may just have deleted the attachment.
        expect(fs.existsSync(cacheOf(network, container))).toBe(false);
        expect(await catena(lab, 'del', 'podnet', container.path)).toMatchObject({ exitCode: 0, stderr: '' });
        expect(await leftOf(lab, network, container)).toEqual([]);
      });
    });

    test('an ADD that fails is undone where the runtime has deleted what was adopted', async () => {
      await withHost(async lab => {
        const [container, other] = [await lab.container(), await lab.container()];
        const network = configure(lab, '1.0.0');
        await addByHand(lab, network, container, { binDir: BIN_DIR, capabilityArgs: {} });
        expect(await adopt(lab)).toMatchObject({ attachments: [{ state: 'adopted' }] });
        await deleteByHand(lab, network, container, BIN_DIR);
        expect(fs.existsSync(recordOf(lab, container))).toBe(true);
        const mapping = ['--cap', JSON.stringify(PORTS)];
        expect(await catena(lab, 'add', 'podnet', other.path, ...mapping)).toMatchObject({ exitCode: 0 });
        const id = ['--container-id', idOf(container)];
        const failed = await catena(lab, 'add', 'podnet', container.path, ...id, ...mapping);
        expect(failed.exitCode).toBe(1);
        expect(failed.stderr).toContain('holds');
        expect(failed.stderr).not.toContain('nothing was undone');
        expect(await catena(lab, 'del', 'podnet', other.path)).toMatchObject({ exitCode: 0 });
        expect(await leftOf(lab, network, container)).toEqual([]);
      });
    });

    test("an ADD that fails is undone where the namespace of what was adopted has become another container's", async () => {
      await withHost(async lab => {
        const [container, other, third] = [
          await lab.container(),
          await lab.container(),
          await lab.container(),
        ];
        const network = configure(lab, '1.0.0');
        await addByHand(lab, network, container, { binDir: BIN_DIR, capabilityArgs: {} });
        expect(await adopt(lab)).toMatchObject({ attachments: [{ state: 'adopted' }] });
        await deleteByHand(lab, network, container, BIN_DIR);
        const successor = ['--container-id', 'successor'];
        expect(await catena(lab, 'add', 'podnet', container.path, ...successor)).toMatchObject({
          exitCode: 0,
        });
        const mapping = ['--cap', JSON.stringify(PORTS)];
        expect(await catena(lab, 'add', 'podnet', other.path, ...mapping)).toMatchObject({ exitCode: 0 });
        const id = ['--container-id', idOf(container)];
        const failed = await catena(lab, 'add', 'podnet', third.path, ...id, ...mapping);
        expect(failed.exitCode).toBe(1);
        expect(failed.stderr).toContain('holds');
        expect(failed.stderr).not.toContain('nothing was undone');
        expect(await lab.ip(third, 'link')).toMatchObject([{ ifname: 'lo' }]);
        expect(await catena(lab, 'check', 'podnet', container.path, ...successor)).toMatchObject({
          exitCode: 0,
        });
        for (const [path, ...more] of [[other.path], [container.path, ...successor]] as const)
          expect(await catena(lab, 'del', 'podnet', path, ...more)).toMatchObject({ exitCode: 0 });
        expect(await leftOf(lab, network, container)).toEqual([]);
      });
    });

    test('adopts an attachment again after its runtime attached it again', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const network = configure(lab, '1.0.0');
        await addByHand(lab, network, container, BY_REFERENCE);
        await adopt(lab);
        const file = cacheOf(network, container);
        fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replaceAll('8080', '8081'));
        expect(await adopt(lab)).toMatchObject({ attachments: [{ state: 'adopted' }] });
        expect(fs.readFileSync(recordOf(lab, container), 'utf8')).toContain('8081');
      });
    });

    test('skips attachments that no longer exist or cannot be used, with the reason', async () => {
      await withHost(async lab => {
        const [changed, gone, bare, old] = await Promise.all(
          Array.from({ length: 4 }, () => lab.container()),
        );
        if (!changed || !gone || !bare || !old) throw new Error('Cannot make containers');
        const network = configure(lab, '1.0.0');
        for (const container of [changed, gone, bare, old])
          await addByHand(lab, network, container, { ...BY_REFERENCE, capabilityArgs: {} });
        await lab.ip(changed, 'link', 'set', 'eth0', 'address', '0a:00:00:00:00:01');
        await lab.ip(bare, 'link', 'delete', 'eth0');
        await lab.remove(gone);
        const { result } = JSON.parse(fs.readFileSync(cacheOf(network, old), 'utf8'));
        fs.writeFileSync(cacheOf(network, old), JSON.stringify(result));
        fs.writeFileSync(`${network.cache}torn-eth0`, '{"kind":');

        const { exitCode, attachments, damaged } = await adopt(lab);
        expect(exitCode).toBe(1);
        // A result of libcni 0.7 under a name of more than three parts could belong to any attachment.
        expect(damaged).toEqual([
          expect.stringContaining(`podnet-${idOf(old)}-eth0": its name does not identify`),
          expect.stringContaining('podnet-torn-eth0'),
        ]);
        const whyOf = (container: Container) =>
          attachments.find((one: Row) => one.containerId === idOf(container))?.why;
        expect(whyOf(changed)).toContain('has hardware address 0a:00:00:00:00:01, not ');
        expect(whyOf(gone)).toContain(`its namespace "${gone.path}" no longer exists`);
        expect(whyOf(bare)).toContain('its namespace has no interface "eth0"');
        expect(fs.existsSync(`${lab.tmp}/state/attachments`)).toBe(false);
      });
    });
  },
  requiresReference('bridge', 'host-local', 'portmap', 'tuning'),
);
