// Does the whole chain of our plugins do on a real kernel what its conflist says, and leave nothing behind?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, type Lab, type Outside, type Row, withHost } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { hasCheck, LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { echo, ping, startServer } from '../helpers/traffic.ts';

setDefaultTimeout(deadline(300_000));

// Installed once per host, and empty without attachments: "minus our fixed skeleton".
const SKELETON = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'] };

const PORTS = {
  portMappings: [
    { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
    { hostPort: 5353, containerPort: 53, protocol: 'udp' },
  ],
};

async function forward(lab: Lab): Promise<void> {
  await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
  await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
}

async function serve(lab: Lab, container: Container): Promise<void> {
  await startServer(lab, container, { protocol: 'tcp', port: 80 });
  await startServer(lab, container, { protocol: 'udp', port: 53 });
}

/** Every way to a mapped port that must work; returns those that do not. */
async function unreachable(
  lab: Lab,
  { one, two, outside }: { one: Container; two: Container; outside: Outside },
): Promise<string[]> {
  const { v4, v6 } = outside.hostAddress;
  const from = { host: lab.host, outside, 'the container itself': one, 'another container': two };
  const failed: string[] = [];
  for (const [name, ns] of Object.entries(from)) {
    for (const address of [v4, v6]) {
      const tcp = await echo(lab, ns, { protocol: 'tcp', address, port: 8080, text: 'tcp' });
      const udp = await echo(lab, ns, { protocol: 'udp', address, port: 5353, text: 'udp' });
      if (tcp?.text !== 'tcp') failed.push(`tcp from ${name} to ${address}`);
      if (udp?.text !== 'udp') failed.push(`udp from ${name} to ${address}`);
    }
  }
  const local = await echo(lab, lab.host, { protocol: 'tcp', address: '127.0.0.1', port: 8080, text: 'tcp' });
  if (local?.text !== 'tcp') failed.push('tcp from host to 127.0.0.1');
  return failed;
}

describeRoot('the full chain', () => {
  // How results are written in the versions between: test/protocol/conversion.test.ts, and catena conformance.
  test.each(['0.3.1', LATEST_SPEC_VERSION] as const)(
    '[%s] connects the pod, maps ports, tunes, and DEL restores the host',
    async cniVersion => {
      await withHost(async lab => {
        const [one, two, outside] = [await lab.container(), await lab.container(), await lab.outside()];
        await forward(lab);
        const chain = writeChain(lab, fullChain(lab, { cniVersion }));
        const before = await lab.dump(lab.host, SKELETON);
        const inside = await lab.dump(one);
        const result = await chain.add(one, { cap: PORTS });
        await chain.add(two);

        expect(result.cniVersion).toBe(cniVersion);
        for (const address of [
          '10.88.0.1',
          'fd88::1',
          '10.88.0.3',
          'fd88::3',
          outside.address.v4,
          outside.address.v6,
        ]) {
          expect([address, await ping(lab, one, address)]).toEqual([address, true]);
        }
        await serve(lab, one);
        expect(await unreachable(lab, { one, two, outside })).toEqual([]);
        expect(await lab.sysctl(one, 'net/core/somaxconn')).toBe('321');
        expect(await lab.sysctl(lab.host, 'net/core/somaxconn')).not.toBe('321');
        expect((await lab.ip(one, 'link', 'show', 'eth0'))[0]).toMatchObject({ mtu: 1400 });

        if (hasCheck(cniVersion))
          expect(await chain.run('check', one)).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
        for (const container of [one, two, one]) {
          expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
        }
        expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
        expect((await lab.dump(one)).links).toEqual(inside.links);
        expect(await lab.sysctl(one, 'net/core/somaxconn')).not.toBe('321');
        expect(await chain.leases()).toEqual([]);
        expect(
          (await lab.run(lab.host, ['find', `${lab.tmp}/cni`, `${lab.tmp}/tuning`, '-type', 'f'])).stdout,
        ).toBe('');
      });
    },
  );

  test('[1.1.0] attaches 60 containers, eight at a time, without errors, duplicate addresses or leaks', async () => {
    await withHost(async lab => {
      await forward(lab);
      const chain = writeChain(lab, fullChain(lab));
      const containers: Container[] = [];
      for (let i = 0; i < 60; i++) containers.push(await lab.container());
      const before = await lab.dump(lab.host, SKELETON);
      const addresses: string[] = [];
      await eightAtATime(containers, async (container, i) => {
        const portMappings = [{ hostPort: 20_000 + i, containerPort: 80, protocol: 'tcp' }];
        const bandwidth = {
          ingressRate: 8_000_000,
          ingressBurst: 400_000,
          egressRate: 8_000_000,
          egressBurst: 400_000,
        };
        const { ips } = await chain.add(container, { cap: { portMappings, bandwidth } });
        addresses.push(...ips.map((ip: { address: string }) => ip.address));
      });
      expect(addresses).toHaveLength(120);
      expect(new Set(addresses).size).toBe(120);
      expect((await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).length).toBe(60);
      expect((await lab.ip(lab.host, 'link', 'show', 'type', 'ifb')).length).toBe(60);

      await eightAtATime(containers, async container => {
        expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
      });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await chain.leases()).toEqual([]);
    });
  });
});

describeRoot('the full chain in error cases', () => {
  test.each<[string, Row]>([
    ['no_such_key', { sysctl: { 'net.core.no_such_key': '1' } }],
    ['"mtu" must be of type number', { mtu: '1400' }],
  ])(
    '[1.1.0] undoes all plugins when the last one says %p, and nothing is left to be deleted',
    async (words, more) => {
      await withHost(async lab => {
        const container = await lab.container();
        await forward(lab);
        const list = fullChain(lab);
        const { plugins } = list;
        const chain = writeChain(lab, { ...list, plugins: plugins.with(3, { ...plugins[3], ...more }) });
        const before = await lab.dump(lab.host, SKELETON);
        const { exitCode, stderr } = await chain.run('add', container, { cap: PORTS });
        expect(exitCode).toBe(1);
        expect(stderr).toContain('tuning');
        expect(stderr).toContain(words);
        expect(stderr).not.toContain('undoing');
        expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
        expect(await chain.leases()).toEqual([]);
        // By the list that was mended.
        await writeChain(lab, list).add(container, { cap: PORTS });
      });
    },
  );

  test('[1.1.0] begins nothing without an IPAM plugin, which DEL would need as well', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const list = fullChain(lab);
      const { plugins } = list;
      const [first] = plugins;
      const misspelt = { ...first, ipam: { ...first.ipam, type: 'host-loca' } };
      const chain = writeChain(lab, { ...list, plugins: plugins.with(0, misspelt) });
      const before = await lab.dump(lab.host, SKELETON);
      const { exitCode, stderr } = await chain.run('add', container, { cap: PORTS });
      expect(exitCode).toBe(1);
      expect(stderr).toContain('Cannot find plugin "host-loca"');
      expect(stderr).not.toContain('undoing');
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      await writeChain(lab, list).add(container, { cap: PORTS });
    });
  });

  test('[1.1.0] refuses a second ADD, and the first attachment keeps working', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const chain = writeChain(lab, fullChain(lab));
      await chain.add(container, { cap: PORTS });
      const before = await lab.dump(lab.host);
      expect(await chain.run('add', container, { cap: PORTS })).toMatchObject({ exitCode: 1 });
      expect(await lab.dump(lab.host)).toEqual(before);
      expect(await chain.run('check', container)).toMatchObject({ exitCode: 0 });
    });
  });

  test('[1.1.0] DEL succeeds without an ADD, and leaves nothing when the namespace is gone', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      await forward(lab);
      const chain = writeChain(lab, fullChain(lab, { rate: 8_000_000 }));
      const before = await lab.dump(lab.host, SKELETON);
      expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
      await chain.add(container, { cap: PORTS });
      await lab.remove(container);
      expect(await chain.run('del', container)).toMatchObject({ exitCode: 0, stderr: '' });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await chain.leases()).toEqual([]);
    });
  });
});

async function eightAtATime<T>(all: readonly T[], work: (one: T, i: number) => Promise<void>): Promise<void> {
  const queue = [...all.entries()];
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next; next = queue.shift()) await work(next[1], next[0]);
  };
  await Promise.all(Array.from({ length: 8 }, worker));
}
