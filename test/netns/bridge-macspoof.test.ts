// Is a container kept from sending under another hardware address, and does the restriction go with it?
import { expect, test } from 'bun:test';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requires, requiresReference } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

const OTHER_MAC = '02:00:00:00:00:99';

function confOf(lab: Lab, more: object = {}): object {
  const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
  const base = { cniVersion: '1.0.0', name: 'podnet', type: 'bridge', bridge: 'br0' };
  return { ...base, isGateway: true, macspoofchk: true, ipam, ...more };
}

async function add(lab: Lab, container: Container, conf: object, binDir?: string) {
  const call = { command: 'ADD', conf, container, ...(binDir ? { binDir } : {}) };
  const reply = await lab.plugin('bridge', call);
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

/** Keys of the elements of our sets, by the name of the set. */
async function elementsOf(lab: Lab): Promise<Record<string, unknown[]>> {
  const { stdout } = await lab.run(lab.host, ['nft', '-j', 'list', 'table', 'bridge', 'catena_macspoof']);
  const rows: { set?: { name: string; elem?: { elem: { val: unknown } }[] } }[] = JSON.parse(stdout).nftables;
  return Object.fromEntries(
    rows.flatMap(({ set }) => (set ? [[set.name, (set.elem ?? []).map(({ elem }) => elem.val)]] : [])),
  );
}

async function becomeOther(lab: Lab, container: Container): Promise<void> {
  for (const line of [
    'ip link set eth0 down',
    `ip link set eth0 address ${OTHER_MAC}`,
    'ip link set eth0 up',
  ]) {
    expect(await lab.run(container, line.split(' '))).toMatchObject({ exitCode: 0 });
  }
}

describeRoot('bridge macspoofchk', () => {
  test('[1.0.0] lets the own address pass and no other', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      await add(lab, one, confOf(lab));
      await add(lab, two, confOf(lab, { macspoofchk: false }));
      expect(await ping(lab, one, '10.88.0.1')).toBe(true);
      expect(await ping(lab, one, '10.88.0.3')).toBe(true);
      await becomeOther(lab, one);
      expect(await ping(lab, one, '10.88.0.1')).toBe(false);
      // A container that is not restricted may do as it likes.
      await becomeOther(lab, two);
      expect(await ping(lab, two, '10.88.0.1')).toBe(true);
    });
  });

  test('[1.0.0] restricts a container without IPAM, with a requested hardware address', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const runtimeConfig = { mac: '0a:58:0a:00:00:07' };
      const result = await add(lab, container, confOf(lab, { ipam: {}, isGateway: false, runtimeConfig }));
      const port = result.interfaces[1].name;
      expect(await elementsOf(lab)).toEqual({
        ports: [port],
        allowed: [{ concat: [port, '0a:58:0a:00:00:07'] }],
      });
    });
  });

  test.each([
    ['', (_lab: Lab, _container: Container) => Promise.resolve()],
    [', also without namespace', (lab: Lab, container: Container) => lab.remove(container)],
  ])('[1.0.0] DEL removes the restriction%s', async (_how, prepare) => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      await add(lab, one, confOf(lab));
      const result = await add(lab, two, confOf(lab));
      await prepare(lab, one);
      // The configuration may have changed in between.
      const conf = confOf(lab, { macspoofchk: false });
      expect(await lab.plugin('bridge', { command: 'DEL', conf, container: one })).toMatchObject({
        exitCode: 0,
      });
      expect((await elementsOf(lab)).ports).toEqual([result.interfaces[1].name]);
    });
  });

  test('[1.1.0] GC removes the restriction of attachments that are not in the list', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const conf = confOf(lab, { cniVersion: '1.1.0' });
      const kept = await add(lab, one, conf);
      await add(lab, two, conf);
      const valid = { 'cni.dev/valid-attachments': [{ containerID: one.id, ifname: 'eth0' }] };
      expect(await lab.plugin('bridge', { command: 'GC', conf: { ...conf, ...valid } })).toMatchObject({
        exitCode: 0,
      });
      expect((await elementsOf(lab)).ports).toEqual([kept.interfaces[1].name]);
    });
  });

  test.each([
    ['a flushed chain', 'nft flush chain bridge catena_macspoof prerouting', 'rules of chain "prerouting"'],
    ['a flushed set', 'nft flush set bridge catena_macspoof allowed', 'of "allowed" is missing'],
    [
      'a deleted table',
      'nft delete table bridge catena_macspoof',
      'table "bridge catena_macspoof" is missing',
    ],
  ])('[1.0.0] CHECK names %s, and another ADD repairs what is shared', async (_what, tamper, words) => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const conf = confOf(lab);
      const prevResult = await add(lab, one, conf);
      const check = () => lab.plugin('bridge', { command: 'CHECK', conf, container: one, prevResult });
      expect(await check()).toMatchObject({ exitCode: 0 });
      await lab.run(lab.host, tamper.split(' '));
      expect(await check()).toMatchObject({ exitCode: 1, error: { msg: expect.stringContaining(words) } });
      await add(lab, two, conf);
      await becomeOther(lab, two);
      expect(await ping(lab, two, '10.88.0.1')).toBe(false);
    });
  });
});

describeRoot(
  'bridge macspoofchk after the reference',
  () => {
    test('[1.0.0] DEL removes the chains of the reference', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        const conf = confOf(lab);
        const prevResult = await add(lab, one, conf, REFERENCE_BIN_DIR);
        // They are as good as our own.
        const check = { command: 'CHECK', conf, container: one, prevResult };
        expect(await lab.plugin('bridge', check)).toMatchObject({ exitCode: 0 });
        await add(lab, two, conf, REFERENCE_BIN_DIR);
        const chains = async () =>
          (await lab.nft(lab.host, 'list', 'table', 'bridge', 'nat')).flatMap(row => row.chain?.name ?? []);
        expect(await chains()).toHaveLength(5);
        const del = (container: Container) => lab.plugin('bridge', { command: 'DEL', conf, container });
        expect(await del(one)).toMatchObject({ exitCode: 0 });
        expect(await chains()).toEqual([
          'PREROUTING',
          `cni-br-iface-${two.id}-eth0`,
          `cni-br-iface-${two.id}-eth0-mac`,
        ]);
        // Also when the runtime comes too late.
        await lab.remove(two);
        expect(await del(two)).toMatchObject({ exitCode: 0 });
        expect(await chains()).toEqual(['PREROUTING']);
      });
    });

    test('[1.1.0] GC removes chains of the reference whose port no longer exists', async () => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        for (const container of [one, two]) await add(lab, container, confOf(lab), REFERENCE_BIN_DIR);
        await lab.run(one, ['ip', 'link', 'del', 'eth0']);
        const valid = { 'cni.dev/valid-attachments': [{ containerID: two.id, ifname: 'eth0' }] };
        const conf = confOf(lab, { cniVersion: '1.1.0', ...valid });
        expect(await lab.plugin('bridge', { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
        const rows = await lab.nft(lab.host, 'list', 'table', 'bridge', 'nat');
        expect(JSON.stringify(rows)).not.toContain(one.id);
        expect(rows.flatMap(row => row.chain?.name ?? [])).toHaveLength(3);
      });
    });
  },
  requires('nft'),
  requiresReference('bridge', 'host-local'),
);
