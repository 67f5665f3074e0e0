// Does the bridge plugin masquerade with either packet filter, and clean up after the reference and the reverse?
import { expect, test } from 'bun:test';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { TEST_PATH } from '../helpers/command.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeNeeding, describeRoot, requires, requiresReference, requiresRoot } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';

const MODES = ['nft', 'legacy'] as const;
type Mode = (typeof MODES)[number];

const IPTABLES = requires('iptables-restore', 'iptables-legacy-restore', 'iptables-nft-restore');

function confOf(lab: Lab, more: object = {}) {
  const ranges = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];
  return {
    cniVersion: '1.0.0',
    name: 'podnet',
    type: 'bridge',
    bridge: 'br0',
    isDefaultGateway: true,
    ipMasq: true,
    ipMasqBackend: 'iptables',
    ipam: { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` },
    ...more,
  };
}

/** A system whose iptables speaks to one of the two packet filters that the kernel has. */
function systemWith(lab: Lab, mode: Mode): Record<string, string> {
  const dir = `${lab.tmp}/${mode}`;
  mkdirSync(dir);
  for (const family of ['iptables', 'ip6tables']) {
    for (const program of ['', '-restore', '-save']) {
      symlinkSync(`/usr/sbin/${family}-${mode}${program}`, `${dir}/${family}${program}`);
    }
  }
  return { PATH: `${dir}:${TEST_PATH}` };
}

/** Lines about chains of attachments, whichever packet filter holds them. */
async function linesOf(lab: Lab): Promise<string[]> {
  const programs = MODES.flatMap(mode => [`iptables-${mode}-save`, `ip6tables-${mode}-save`]);
  const outputs = await Promise.all(programs.map(program => lab.run(lab.host, [program, '-t', 'nat'])));
  return outputs.flatMap(({ stdout }) => stdout.split('\n').filter(line => line.includes('CNI-')));
}

async function call(lab: Lab, command: string, conf: object, container: Container, more: object = {}) {
  const reply = await lab.plugin('bridge', { command, conf, container, ...more });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

describeRoot(
  'bridge ipMasq with iptables',
  () => {
    test.each(MODES)('[1.0.0] %s: masquerades the container, and DEL leaves no rule', async mode => {
      await withHost(async lab => {
        const [one, two, outside] = [await lab.container(), await lab.container(), await lab.outside()];
        const env = systemWith(lab, mode);
        const conf = confOf(lab);
        const prevResult = await call(lab, 'ADD', conf, one, { env });
        await call(lab, 'ADD', conf, two, { env });
        for (const ns of [outside, two]) await startServer(lab, ns, { protocol: 'tcp', port: 7000 });
        const peerAt = async (address: string) =>
          (await echo(lab, one, { protocol: 'tcp', address, port: 7000 }))?.peer;
        expect(await peerAt(outside.address.v4)).toBe(outside.hostAddress.v4);
        expect(await peerAt(outside.address.v6)).toBe(outside.hostAddress.v6);
        expect(await peerAt('10.88.0.3')).toBe('10.88.0.2');
        expect(await peerAt('fd88::3')).toBe('fd88::2');
        await call(lab, 'CHECK', conf, one, { env, prevResult });
        // Neither the namespace nor the right programs are needed, nor that the configuration still asks for it.
        await lab.remove(one);
        await call(lab, 'DEL', { ...conf, ipMasq: false }, one);
        expect((await linesOf(lab)).filter(line => line.includes(one.id))).toEqual([]);
        await call(lab, 'DEL', conf, two, { env });
        expect(await linesOf(lab)).toEqual([]);
      });
    });

    test.each(MODES)('[1.0.0] %s: CHECK knows rules whose comment iptables has cut', async mode => {
      await withHost(async lab => {
        const container = { ...(await lab.container()), id: 'c'.repeat(64) };
        const env = systemWith(lab, mode);
        const conf = confOf(lab, { name: 'n'.repeat(180) });
        const prevResult = await call(lab, 'ADD', conf, container, { env });
        await call(lab, 'CHECK', conf, container, { env, prevResult });
        await call(lab, 'DEL', conf, container, { env, prevResult });
        expect(await linesOf(lab)).toEqual([]);
      });
    });

    test('[1.0.0] DEL keeps the rules of another interface of the container', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const conf = confOf(lab);
        const first = await call(lab, 'ADD', conf, container);
        const second = await call(lab, 'ADD', conf, container, { ifname: 'eth1' });
        await call(lab, 'CHECK', conf, container, { prevResult: first });
        await call(lab, 'DEL', conf, container, { prevResult: first });
        await call(lab, 'CHECK', conf, container, { prevResult: second, ifname: 'eth1' });
        expect((await linesOf(lab)).filter(line => /-s 10\.88\.0\.2\/|-s fd88::2\//.test(line))).toEqual([]);
        await call(lab, 'DEL', conf, container, { ifname: 'eth1' });
        expect(await linesOf(lab)).toEqual([]);
      });
    });

    test.each([
      ['a rule', (chain: string) => `iptables -t nat -D ${chain} 1`, '-j ACCEPT'],
      ['what is in the chain', (chain: string) => `ip6tables -t nat -F ${chain}`, 'fd88::/64'],
      ['the way there', () => 'iptables -t nat -F POSTROUTING', 'POSTROUTING -s 10.88.0.2/32'],
    ])('[1.0.0] CHECK reports %s as missing', async (_what, tamper, words) => {
      await withHost(async lab => {
        const container = await lab.container();
        const conf = confOf(lab);
        const prevResult = await call(lab, 'ADD', conf, container);
        const chain = /CNI-\w+/.exec((await linesOf(lab)).join())?.[0] ?? '';
        await lab.run(lab.host, tamper(chain).split(' '));
        const reply = await lab.plugin('bridge', { command: 'CHECK', conf, container, prevResult });
        expect(reply).toMatchObject({ exitCode: 1, error: { msg: expect.stringContaining(words) } });
      });
    });

    test.each(MODES)(
      '[1.1.0] %s: GC removes the rules of attachments that are not in the list',
      async mode => {
        await withHost(async lab => {
          const [one, two] = [await lab.container(), await lab.container()];
          const env = systemWith(lab, mode);
          const conf = confOf(lab, { cniVersion: '1.1.0' });
          for (const container of [one, two]) await call(lab, 'ADD', conf, container, { env });
          const valid = { 'cni.dev/valid-attachments': [{ containerID: two.id, ifname: 'eth0' }] };
          const gc = { command: 'GC', conf: { ...conf, ...valid }, env };
          expect(await lab.plugin('bridge', gc)).toMatchObject({ exitCode: 0 });
          const ids = (await linesOf(lab)).map(line => /id: \\"(.*?)\\"/.exec(line)?.[1] ?? two.id);
          expect([...new Set(ids)]).toEqual([two.id]);
        });
      },
    );

    test('[1.0.0] ADD reports the error of a program that fails, and leaves nothing', async () => {
      await withHost(async lab => {
        const container = await lab.container();
        const before = await lab.dump(lab.host);
        const dir = `${lab.tmp}/refusing`;
        mkdirSync(dir);
        writeFileSync(`${dir}/ip6tables-restore`, '#!/bin/sh\necho "line 3: no chain today" >&2\nexit 4\n', {
          mode: 0o755,
        });
        const env = { PATH: `${dir}:${TEST_PATH}` };
        const reply = await lab.plugin('bridge', { command: 'ADD', conf: confOf(lab), container, env });
        expect(reply.error?.msg).toContain('line 3: no chain today');
        expect(await linesOf(lab)).toEqual([]);
        expect((await lab.dump(lab.host)).links).toEqual(before.links);
      });
    });
  },
  IPTABLES,
);

describeNeeding(
  'bridge ipMasq and the reference',
  () => {
    const legacyConf = (lab: Lab) => {
      const { ipMasqBackend: _, ...conf } = confOf(lab);
      return conf;
    };

    test.each(MODES)('[1.0.0] %s: DEL removes the rules of the reference', async mode => {
      await withHost(async lab => {
        const [one, two] = [await lab.container(), await lab.container()];
        const env = systemWith(lab, mode);
        const conf = legacyConf(lab);
        const theirs = { env, binDir: REFERENCE_BIN_DIR };
        const prevResult = await call(lab, 'ADD', conf, one, theirs);
        await call(lab, 'ADD', conf, two, theirs);
        expect((await linesOf(lab)).length).toBeGreaterThan(10);
        // It is as good as our own.
        await call(lab, 'CHECK', conf, one, { env, prevResult });
        await call(lab, 'DEL', conf, one, { env });
        await lab.remove(two);
        await call(lab, 'DEL', conf, two, { env });
        expect(await linesOf(lab)).toEqual([]);
      });
    });

    test.each(MODES)('[1.0.0] %s: the reference removes our rules', async mode => {
      await withHost(async lab => {
        const container = await lab.container();
        const env = systemWith(lab, mode);
        // Several subnets of a family are more than the reference can remove.
        await call(lab, 'ADD', confOf(lab), container, { env });
        expect((await linesOf(lab)).length).toBeGreaterThan(5);
        await call(lab, 'DEL', legacyConf(lab), container, { env, binDir: REFERENCE_BIN_DIR });
        expect(await linesOf(lab)).toEqual([]);
      });
    });
  },
  requiresRoot(),
  requiresReference('bridge', 'host-local'),
  IPTABLES,
);

describeRoot('bridge ipMasq after the nftables backend of the reference', () => {
  // sha512 of the network, and of interface and container, as the reference's comments begin.
  const keys = (network: string, owner: string) => {
    const hash = (text: string) => new Bun.CryptoHasher('sha512').update(text).digest('hex').slice(0, 16);
    return `${hash(network)}-${hash(owner)}`;
  };
  const rule = (network: string, id: string, address: string) =>
    `add rule inet cni_plugins_masquerade masq_checks ip saddr ${address} ip daddr != 10.88.0.0/24 masquerade ` +
    `comment "${keys(network, `eth0:${id}`)}, net: ${network}, if: eth0, id: ${id}"`;

  const theirRules = async (lab: Lab) => {
    const rows = await lab.nft(lab.host, 'list', 'chain', 'inet', 'cni_plugins_masquerade', 'masq_checks');
    return rows.flatMap(row => row.rule?.comment?.replace(/.*id: /, '') ?? []);
  };

  async function prepare(lab: Lab): Promise<void> {
    const lines = [
      'add table inet cni_plugins_masquerade',
      'add chain inet cni_plugins_masquerade masq_checks',
      'add chain inet cni_plugins_masquerade postrouting { type nat hook postrouting priority 100; }',
      'add rule inet cni_plugins_masquerade postrouting goto masq_checks',
      rule('podnet', 'one', '10.88.0.2'),
      rule('podnet', 'two', '10.88.0.3'),
      rule('othernet', 'three', '10.88.0.4'),
    ];
    expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin: lines.join('\n') })).toMatchObject({
      exitCode: 0,
    });
  }

  test('[1.0.0] DEL removes the rules of the attachment', async () => {
    await withHost(async lab => {
      await prepare(lab);
      const container = { id: 'one', path: '/nonexistent' };
      expect(await lab.plugin('bridge', { command: 'DEL', conf: confOf(lab), container })).toMatchObject({
        exitCode: 0,
      });
      expect(await theirRules(lab)).toEqual(['two', 'three']);
    });
  });

  test('[1.1.0] GC removes rules of attachments that are not in the list', async () => {
    await withHost(async lab => {
      await prepare(lab);
      const valid = { 'cni.dev/valid-attachments': [{ containerID: 'two', ifname: 'eth0' }] };
      const conf = { ...confOf(lab), ...valid, cniVersion: '1.1.0' };
      expect(await lab.plugin('bridge', { command: 'GC', conf })).toMatchObject({ exitCode: 0 });
      expect(await theirRules(lab)).toEqual(['two', 'three']);
    });
  });
});
