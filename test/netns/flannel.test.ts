// Does a container get to where flanneld says, and does DEL need nothing but what ADD kept?
import { expect, test } from 'bun:test';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { lineReader } from '../helpers/lines.ts';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot, requiresReference, testNeeding } from '../helpers/skip.ts';
import { echo, ping, startServer } from '../helpers/traffic.ts';

const SKELETON = { ignoreTables: ['inet catena_masquerade'] };

function confOf(lab: Lab, more: object = {}) {
  return {
    cniVersion: '1.1.0',
    name: 'cbr0',
    type: 'flannel',
    subnetFile: `${lab.tmp}/subnet.env`,
    dataDir: `${lab.tmp}/flannel`,
    ipam: { dataDir: `${lab.tmp}/leases`, routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }] },
    delegate: { bridge: 'br0', hairpinMode: true },
    ...more,
  };
}

function writeSubnets(lab: Lab, mtu = 1400): void {
  const lines = [
    'FLANNEL_NETWORK=10.244.0.0/16',
    'FLANNEL_SUBNET=10.244.3.1/24',
    'FLANNEL_IPV6_NETWORK=fd00:244::/48',
    'FLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64',
    `FLANNEL_MTU=${mtu}`,
    'FLANNEL_IPMASQ=false',
  ];
  writeFileSync(`${lab.tmp}/subnet.env`, `${lines.join('\n')}\n`);
}

async function add(lab: Lab, container: Container, conf: object, more: object = {}): Promise<Row> {
  const reply = await lab.plugin('flannel', { command: 'ADD', conf, container, ...more });
  expect(reply).toMatchObject({ exitCode: 0 });
  return reply.result;
}

const kept = (lab: Lab) => (existsSync(`${lab.tmp}/flannel`) ? readdirSync(`${lab.tmp}/flannel`).sort() : []);
const leases = (lab: Lab) =>
  readdirSync(`${lab.tmp}/leases/cbr0`)
    .filter(name => /^[0-9a-f]+[.:]/.test(name))
    .sort();

/** Has a worker serve one call. Its chain ends, and what was deferred is done, when the function is called that is returned. */
async function inWorker(lab: Lab, command: 'ADD' | 'DEL', conf: object, container: Container) {
  const env = {
    ...directories(lab.tmp),
    CNI_COMMAND: command,
    CNI_CONTAINERID: container.id,
    CNI_NETNS: container.path,
    CNI_IFNAME: 'eth0',
    CNI_PATH: BIN_DIR,
  };
  const calls = [{ plugin: 'flannel', env, stdin: JSON.stringify(conf) }];
  const segment = { calls, threadsResult: false, stopsAtFailure: false, chain: 'a' };
  const fifo = `${lab.tmp}/requests`;
  await lab.run(lab.host, ['mkfifo', fifo]);
  const worker = lab.start(lab.host, ['sh', '-c', `exec ${BIN_DIR}/flannel --worker < ${fifo}`]);
  const requests = openSync(fifo, 'r+');
  writeSync(requests, `${JSON.stringify({ segment })}\n`);
  const next = lineReader(worker.stdout);
  // The first one says that it has begun.
  expect(await next()).toBe('');
  const endChain = async () => {
    closeSync(requests);
    await worker.exited;
  };
  return { reply: JSON.parse(await next()), endChain };
}

describeRoot('flannel', () => {
  test('DEL keeps what ADD stored until its delegate has deleted everything, which a worker does last', async () => {
    await withHost(async lab => {
      writeSubnets(lab);
      const container = await lab.container();
      const conf = confOf(lab);
      await add(lab, container, conf);
      const [stored, held] = [kept(lab), leases(lab)];
      const { reply, endChain } = await inWorker(lab, 'DEL', conf, container);
      expect(reply).toMatchObject({ exitCode: 0, stdout: '' });
      // A worker that is killed now has deleted nothing: the next DEL must find all of it.
      expect([kept(lab), leases(lab)]).toEqual([stored, held]);
      await endChain();
      expect([kept(lab), leases(lab)]).toEqual([[], []]);
    });
  });

  test('what an ADD of an earlier boot stored is replaced: CHECK and DEL go by the present one', async () => {
    await withHost(async lab => {
      writeSubnets(lab, 1300);
      const container = await lab.container();
      const conf = confOf(lab);
      await add(lab, container, conf);
      // As after a boot: neither the interface nor its lease is there.
      await lab.ip(container, 'link', 'del', 'eth0');
      for (const lease of leases(lab)) rmSync(`${lab.tmp}/leases/cbr0/${lease}`);
      writeSubnets(lab, 1400);
      const prevResult = await add(lab, container, conf);
      const stored = JSON.parse(readFileSync(`${lab.tmp}/flannel/${container.id}:eth0`, 'utf8'));
      expect(stored.mtu).toBe(1400);
      expect(await lab.plugin('flannel', { command: 'CHECK', conf, container, prevResult })).toMatchObject({
        exitCode: 0,
      });
      await lab.plugin('flannel', { command: 'DEL', conf, container });
      expect([kept(lab), leases(lab)]).toEqual([[], []]);
    });
  });

  test('so does the undo of an ADD whose delegate fails', async () => {
    await withHost(async lab => {
      writeSubnets(lab);
      const container = await lab.container();
      const conf = confOf(lab, { delegate: { hairpinMode: true, promiscMode: true } });
      const { reply, endChain } = await inWorker(lab, 'ADD', conf, container);
      expect(reply.stdout).toContain('exclude each other');
      expect(kept(lab)).toEqual([container.id, `${container.id}:eth0`]);
      await endChain();
      expect(kept(lab)).toEqual([]);
    });
  });

  test('ADD connects two containers, the gateway and the outside; DEL removes everything', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const outside = await lab.outside();
      await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
      await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
      writeSubnets(lab);
      const conf = confOf(lab);
      const before = await lab.dump(lab.host, SKELETON);
      const result = await add(lab, one, conf);
      await add(lab, two, conf);
      expect(result.ips).toMatchObject([
        { address: '10.244.3.2/24', gateway: '10.244.3.1' },
        { address: 'fd00:244:0:3::2/64', gateway: 'fd00:244:0:3::1' },
      ]);
      expect(result.routes.map((route: Row) => route.dst)).toEqual([
        '0.0.0.0/0',
        '::/0',
        '10.244.0.0/16',
        'fd00:244::/48',
      ]);
      const [link] = await lab.ip(one, 'link', 'show', 'eth0');
      expect(link).toMatchObject({ mtu: 1400, operstate: 'UP' });
      const { v4, v6 } = outside.address;
      for (const address of ['10.244.3.1', 'fd00:244:0:3::1', '10.244.3.3', 'fd00:244:0:3::3', v4, v6]) {
        expect([address, await ping(lab, one, address)]).toEqual([address, true]);
      }
      // flanneld does not masquerade, so the bridge does.
      await startServer(lab, outside, { protocol: 'tcp', port: 7000 });
      const seen = await echo(lab, one, { protocol: 'tcp', address: v4, port: 7000 });
      expect(seen?.peer).toBe(outside.hostAddress.v4);
      const call = { conf, container: one };
      const check = await lab.plugin('flannel', { ...call, command: 'CHECK', prevResult: result });
      expect(check).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.plugin('flannel', { command: 'STATUS', conf })).toMatchObject({ exitCode: 0 });
      // flanneld has gone, and the configuration has changed: DEL works with what ADD kept.
      rmSync(`${lab.tmp}/subnet.env`);
      const changed = { ...conf, delegate: { type: 'nobody' }, ipam: {} };
      for (const container of [one, two, two]) {
        const del = await lab.plugin('flannel', { command: 'DEL', conf: changed, container });
        expect(del).toMatchObject({ exitCode: 0, stdout: '' });
      }
      await lab.run(lab.host, ['ip', 'link', 'del', 'br0']);
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect([kept(lab), leases(lab)]).toEqual([[], []]);
    });
  });

  test('[1.1.0] two attachments of one container are kept apart', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      writeSubnets(lab);
      const [first, second] = [
        confOf(lab),
        // Both networks hand out the same address, which only one of them can masquerade.
        confOf(lab, {
          name: 'other',
          delegate: { type: 'ptp', ipMasq: false },
          ipam: { dataDir: `${lab.tmp}/more` },
        }),
      ];
      await add(lab, container, first);
      await add(lab, container, second, { ifname: 'net1' });
      expect(kept(lab)).toEqual([container.id, `${container.id}:eth0`, `${container.id}:net1`]);
      const del = { command: 'DEL', container };
      expect(await lab.plugin('flannel', { ...del, conf: second, ifname: 'net1' })).toMatchObject({
        exitCode: 0,
      });
      const names = async () => (await lab.ip(container, 'link')).map(link => link.ifname);
      expect(await names()).toEqual(['lo', 'eth0']);
      expect(await lab.plugin('flannel', { ...del, conf: first })).toMatchObject({ exitCode: 0 });
      expect([await names(), kept(lab)]).toEqual([['lo'], []]);
    });
  });

  test('[1.1.0] a delegate that fails is called with DEL, and nothing is kept', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      writeSubnets(lab);
      const binDir = `${lab.tmp}/bin`;
      mkdirSync(binDir);
      const answer = `{"code":117,"msg":"no room","details":"here"}`;
      const script = `#!/bin/sh\necho "$CNI_COMMAND" >> ${lab.tmp}/calls\ncat > /dev/null\n[ $CNI_COMMAND = DEL ] || { echo '${answer}'; exit 1; }\n`;
      writeFileSync(`${binDir}/mine`, script, { mode: 0o755 });
      const conf = confOf(lab, { delegate: { type: 'mine' } });
      const reply = await lab.plugin('flannel', {
        command: 'ADD',
        conf,
        container,
        cniPath: `${binDir}:${BIN_DIR}`,
      });
      expect(reply).toMatchObject({ exitCode: 1, error: { code: 117, msg: 'no room', details: 'here' } });
      expect(readFileSync(`${lab.tmp}/calls`, 'utf8')).toBe('ADD\nDEL\n');
      expect(kept(lab)).toEqual([]);
    });
  });

  test('[1.1.0] DEL works without a file, with an empty one, and with that of the reference', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      writeSubnets(lab);
      const conf = confOf(lab);
      const del = { command: 'DEL', conf, container };
      expect(await lab.plugin('flannel', del)).toMatchObject({ exitCode: 0, stdout: '' });
      const shared = `${lab.tmp}/flannel/${container.id}`;
      for (const [text, hasSubnets] of [
        [undefined, true],
        ['', true],
        ['', false],
      ] as const) {
        await add(lab, container, conf);
        const file = readFileSync(shared, 'utf8');
        rmSync(`${shared}:eth0`);
        rmSync(shared);
        writeFileSync(shared, text ?? file);
        if (!hasSubnets) rmSync(`${lab.tmp}/subnet.env`);
        const reply = await lab.plugin('flannel', del);
        expect(reply).toMatchObject({ exitCode: 0, stdout: '' });
        expect((await lab.ip(container, 'link')).map(link => link.ifname)).toEqual(['lo']);
        expect([kept(lab), leases(lab)]).toEqual([[], []]);
      }
    });
  });

  test('[1.1.0] ADD replaces a file that cannot be read', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      writeSubnets(lab);
      mkdirSync(`${lab.tmp}/flannel`);
      // A power loss can leave it empty.
      writeFileSync(`${lab.tmp}/flannel/${container.id}`, '');
      const conf = confOf(lab);
      await add(lab, container, conf);
      expect(kept(lab)).toEqual([container.id, `${container.id}:eth0`]);
      // The list has another delegate since.
      const changed = confOf(lab, { delegate: { type: 'ptp' } });
      const reply = await lab.plugin('flannel', { command: 'DEL', conf: changed, container });
      expect(reply).toMatchObject({ exitCode: 0, stdout: '' });
      expect([kept(lab), leases(lab)]).toEqual([[], []]);
    });
  });

  test('[1.1.0] DEL keeps the stored configuration until the delegate has succeeded', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      writeSubnets(lab);
      const conf = confOf(lab);
      await add(lab, container, conf);
      const del = { command: 'DEL', conf, container };
      expect(await lab.plugin('flannel', { ...del, cniPath: lab.tmp })).toMatchObject({ exitCode: 1 });
      expect(kept(lab)).toHaveLength(2);
      expect(await lab.plugin('flannel', del)).toMatchObject({ exitCode: 0 });
      expect(kept(lab)).toEqual([]);
    });
  });

  test('[1.1.0] without a subnet file ADD fails with code 11, and STATUS with 50', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab);
      const gist = { msg: expect.stringContaining('subnet.env": it does not exist') };
      expect(await lab.plugin('flannel', { command: 'ADD', conf, container })).toMatchObject({
        error: { code: 11, ...gist },
      });
      expect(await lab.plugin('flannel', { command: 'STATUS', conf })).toMatchObject({
        error: { code: 50, ...gist },
      });
      expect(kept(lab)).toEqual([]);
    });
  });

  test('[1.1.0] GC removes stored configurations of invalid attachments and calls the delegate', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      writeSubnets(lab);
      const conf = confOf(lab);
      await add(lab, one, conf);
      await add(lab, two, conf);
      const valid = [{ containerID: two.id, ifname: 'eth0' }];
      const reply = await lab.plugin('flannel', {
        command: 'GC',
        conf: { ...conf, 'cni.dev/valid-attachments': valid },
      });
      expect(reply).toMatchObject({ exitCode: 0, stdout: '' });
      expect(kept(lab)).toEqual([two.id, `${two.id}:eth0`]);
      expect(leases(lab)).toEqual(['10.244.3.3', 'fd00:244:0:3::3']);
    });
  });

  testNeeding(
    '[1.0.0] a delegate may be the reference plugin',
    async () => {
      await withHost(async lab => {
        const container = await lab.container();
        writeSubnets(lab, 1300);
        const binDir = `${lab.tmp}/bin`;
        mkdirSync(binDir);
        symlinkSync(`${BIN_DIR}/flannel`, `${binDir}/flannel`);
        const cniPath = `${binDir}:${REFERENCE_BIN_DIR}`;
        const conf = confOf(lab, { cniVersion: '1.0.0' });
        await add(lab, container, conf, { cniPath });
        for (const address of ['10.244.3.1', 'fd00:244:0:3::1']) {
          expect([address, await ping(lab, container, address)]).toEqual([address, true]);
        }
        // Its CHECK takes no route without a gateway, which flannel's are.
        const del = await lab.plugin('flannel', { command: 'DEL', conf, container, cniPath });
        expect(del).toMatchObject({ exitCode: 0 });
        expect([kept(lab), leases(lab)]).toEqual([[], []]);
      });
    },
    requiresReference('bridge', 'host-local'),
  );
});
