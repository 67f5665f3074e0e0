// Do plugins behave the same when one process serves them all, and what does a worker that ends early cost?

import { expect, test } from 'bun:test';
import { mkdirSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { holdLeases } from '../helpers/held-leases.ts';
import { makeOtherBuild } from '../helpers/installed.ts';
import { directories, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';

const SERVED = 8;
const CHECKS = 8;
const CAP = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] };

describeRoot('worker', () => {
  const makeLab = useLabs();

  test('serves a chain with the results and the traces in the kernel of a process for each plugin', async () => {
    const lab = await makeLab();
    const chain = writeChain(lab, fullChain(lab, { rate: 80_000_000 }));
    const container = await lab.container();
    // Forwarding and the fixed tables stay after the first attachment.
    await chain.add(container, { cap: CAP });
    expect((await chain.run('del', container)).stderr).toBe('');
    const runs = [];
    // Executables of another build are third-party ones: each is a process.
    for (const binDir of [BIN_DIR, makeOtherBuild(`${lab.tmp}/other`)]) {
      const before = await lab.dump(lab.host);
      const { exitCode, stdout } = await chain.run('add', container, { cap: CAP, binDir });
      expect(exitCode).toBe(0);
      expect((await chain.run('check', container, { binDir })).stderr).toBe('');
      const devices = (await lab.ip(lab.host, 'link', 'show')).map(({ ifname }) => kindOf(ifname)).sort();
      expect((await chain.run('del', container, { binDir })).stderr).toBe('');
      expect(await lab.dump(lab.host)).toEqual(before);
      runs.push({ ips: ipsOf(stdout), devices });
    }
    const [together, separate] = runs;
    expect(together?.devices).toEqual(separate?.devices ?? []);
    expect(together?.ips.length).toBe(separate?.ips.length ?? 0);
  });

  test('that hangs is ended at the deadline, and what was done is undone by another', async () => {
    const lab = await makeLab();
    const { chain, container, release } = await holdLeases(lab);
    await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
    await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
    const before = await lab.dump(lab.host);
    const { exitCode, stderr } = await chain.run('add', container, { args: ['--timeout', '1'] });
    expect(exitCode).toBe(1);
    expect(stderr).toContain('did not finish within 1 s');
    release();
    expect((await chain.run('del', container)).exitCode).toBe(0);
    expect(await lab.dump(lab.host)).toEqual(before);
    await chain.add(container);
  });

  // One that the engine starts while a plugin works in a container would keep the container's namespace alive.
  test('has no thread in the namespace of a container, however much it has served', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab);
    try {
      const chain = writeChain(lab, fullChain(lab, { rate: 80_000_000 }));
      for (let i = 0; i < SERVED; i++) {
        const container = await lab.container();
        await chain.add(container, { cap: CAP });
        for (let n = 0; n < CHECKS; n++) await chain.run('check', container);
        await chain.run('del', container);
      }
      const processes = [daemon.pid, ...childrenOf(daemon.pid)];
      const threads = processes.flatMap(pid =>
        readdirSync(`/proc/${pid}/task`).map(id => `/proc/${pid}/task/${id}`),
      );
      const where = threads.map(thread => [
        readFileSync(`${thread}/comm`, 'utf8'),
        readlinkSync(`${thread}/ns/net`),
      ]);
      const host = readlinkSync(`/proc/${daemon.pid}/ns/net`);
      expect(where.filter(([, netns]) => netns !== host)).toEqual([]);
      expect(processes.length).toBeGreaterThan(1);
    } finally {
      await daemon.stop();
    }
  });

  test('that is killed costs the call that it serves', async () => {
    const lab = await makeLab();
    const { chain, container, waiter, release } = await holdLeases(lab);
    const adding = chain.run('add', container);
    process.kill(await waiter('--worker'), 'SIGKILL');
    release();
    const { exitCode, stderr } = await adding;
    expect(exitCode).toBe(1);
    expect(stderr).toContain('SIGKILL');
    expect(await chain.leases()).toEqual([]);
    await chain.add(container);
  });

  test('does the deferred removals when no request follows', async () => {
    const lab = await makeLab();
    const list = fullChain(lab);
    const chain = writeChain(lab, { ...list, plugins: list.plugins.slice(0, 1) });
    const container = await lab.container();
    await chain.add(container);
    const request = { ...list.plugins[0], name: list.name, cniVersion: list.cniVersion };
    const call = {
      plugin: 'bridge',
      env: {
        ...directories(lab.tmp),
        CNI_COMMAND: 'DEL',
        CNI_CONTAINERID: container.id,
        CNI_NETNS: container.path,
        CNI_IFNAME: 'eth0',
        CNI_PATH: BIN_DIR,
      },
      stdin: JSON.stringify(request),
    };
    const segment = { calls: [call], threadsResult: false, stopsAtFailure: false, chain: 'a' };
    const { stdout } = await lab.run(lab.host, [`${BIN_DIR}/bridge`, '--worker'], {
      stdin: `${JSON.stringify({ segment })}\n`,
      timeoutMs: 30_000,
    });
    expect(JSON.parse(stdout)).toMatchObject({ exitCode: 0, stdout: '', removals: [expect.any(Number)] });
    expect(await lab.ip(container, 'link', 'show', 'type', 'veth')).toEqual([]);
    expect(await chain.leases()).toEqual([]);
  });

  test('a foreign plugin is started as a process', async () => {
    const lab = await makeLab();
    const list = fullChain(lab);
    const dir = `${lab.tmp}/foreign`;
    mkdirSync(dir);
    writeFileSync(`${dir}/witness`, `#!/bin/sh\necho "$CNI_COMMAND" >> ${lab.tmp}/seen\n`, { mode: 0o755 });
    list.plugins.push({ type: 'witness' });
    const chain = writeChain(lab, list);
    const container = await lab.container();
    await chain.run('del', container, { args: ['--bin-dir', dir] });
    expect(await Bun.file(`${lab.tmp}/seen`).text()).toBe('DEL\n');
  });
});

function kindOf(name: string): string {
  return name.replace(/^(veth|bw).*/, '$1');
}

function ipsOf(result: string): { address: string }[] {
  return JSON.parse(result).ips;
}
