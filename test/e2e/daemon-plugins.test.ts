// Does a plugin called by any runtime gain from a daemon, and lose nothing?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { type Daemon, startDaemon } from '../helpers/daemon.ts';
import { holdLock } from '../helpers/held-leases.ts';
import { type Container, directories, type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR, type PluginReply } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';
import { actAsDaemon } from '../helpers/wire.ts';

/** bridge with host-local, as podman has it. */
function bridgeOf(lab: Lab, more: object = {}): Row {
  const ipam = {
    type: 'host-local',
    ranges: [[{ subnet: '10.88.0.0/16' }], [{ subnet: 'fd88::/64' }]],
    dataDir: `${lab.tmp}/leases`,
    ...more,
  };
  return { cniVersion: '1.0.0', name: 'podnet', type: 'bridge', bridge: 'br0', isGateway: true, ipam };
}

function leasesIn(dir: string): string[] {
  return fs.existsSync(dir)
    ? fs
        .readdirSync(dir)
        .filter(name => /^(10\.|fd)/.test(name))
        .sort()
    : [];
}

async function servedBy(daemon: Daemon): Promise<number> {
  return ((await (await daemon.fetch('/v1/state')).json()) as { served: number }).served;
}

describeRoot('plugins beside a daemon', () => {
  const makeLab = useLabs();

  test('are served by its workers, with the replies of a process of their own', async () => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const container = await lab.container();
    const verbs = async (): Promise<PluginReply[]> => {
      const added = await lab.plugin('bridge', { command: 'ADD', conf, container });
      const prevResult = added.result;
      const checked = await lab.plugin('bridge', { command: 'CHECK', conf, container, prevResult });
      const again = await lab.plugin('bridge', { command: 'ADD', conf, container });
      return [added, checked, again, await lab.plugin('bridge', { command: 'DEL', conf, container })];
    };
    const cold = await verbs();
    const daemon = await startDaemon(lab);
    const warm = await verbs();
    expect(warm.map(({ exitCode }) => exitCode)).toEqual([0, 0, 1, 0]);
    // host-local is round-robin: the next address is another one.
    const words = (replies: PluginReply[]): string[] =>
      replies.map(({ stderr, error }) => `${stderr}${error?.code}${error?.msg.replace(/holds .*;/, '')}`);
    expect(words(warm)).toEqual(words(cold));
    const places = ({ result }: PluginReply): unknown => ({
      ...result,
      ips: result.ips.length,
      interfaces: result.interfaces.map(({ sandbox }: Row) => sandbox),
    });
    expect(places(warm[0] as PluginReply)).toEqual(places(cold[0] as PluginReply));
    expect(await servedBy(daemon)).toBe(4);
    expect(leasesIn(`${lab.tmp}/leases/podnet`)).toEqual([]);
    expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toEqual([]);
    const traces = (await (await daemon.fetch('/v1/traces')).json()) as Row;
    expect(JSON.stringify(traces)).toContain('bridge');
  });

  test('are served for STATUS and GC, too, and do without it for VERSION', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab);
    const conf = { ...bridgeOf(lab), cniVersion: '1.1.0' };
    for (const command of ['VERSION', 'STATUS', 'GC'])
      expect(await lab.plugin('bridge', { command, conf })).toMatchObject({ exitCode: 0 });
    expect(await servedBy(daemon)).toBe(2);
  });

  test('resolve relative paths of their configuration in the working directory of the caller', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab);
    const container = await lab.container();
    fs.mkdirSync(`${lab.tmp}/here`);
    const call = async (command: string): Promise<unknown> => {
      const child = Bun.spawn(['nsenter', `--net=${lab.host.path}`, '--', `${BIN_DIR}/bridge`], {
        cwd: `${lab.tmp}/here`,
        env: {
          ...directories(lab.tmp),
          CNI_COMMAND: command,
          CNI_CONTAINERID: container.id,
          CNI_NETNS: container.path,
          CNI_IFNAME: 'eth0',
          CNI_PATH: path.relative(`${lab.tmp}/here`, BIN_DIR),
        },
        stdin: Buffer.from(JSON.stringify(bridgeOf(lab, { dataDir: 'leases' }))),
        stdout: 'pipe',
      });
      const said = await new Response(child.stdout).text();
      return (await child.exited) === 0 ? [] : said;
    };
    expect(await call('ADD')).toEqual([]);
    expect(leasesIn(`${lab.tmp}/here/leases/podnet`)).toHaveLength(2);
    expect(await call('DEL')).toEqual([]);
    expect(leasesIn(`${lab.tmp}/here/leases/podnet`)).toEqual([]);
    expect(await servedBy(daemon)).toBe(2);
  });

  test('undo an ADD that the daemon began and did not answer, and add again', async () => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const container = await lab.container();
    // As far as an ADD can come whose answer is lost.
    await lab.plugin('bridge', { command: 'ADD', conf, container });
    const hangsUp = await actAsDaemon(`${lab.tmp}/run/catena.sock`, client => client.destroy());
    try {
      const added = await lab.plugin('bridge', { command: 'ADD', conf, container });
      expect(added).toMatchObject({ exitCode: 0, stderr: '' });
      expect(leasesIn(`${lab.tmp}/leases/podnet`)).toHaveLength(2);
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toHaveLength(1);
      expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({ exitCode: 0 });
    } finally {
      await hangsUp.stop();
    }
    expect(leasesIn(`${lab.tmp}/leases/podnet`)).toEqual([]);
  });

  test('end with their caller, as a process of their own would', async () => {
    const lab = await makeLab();
    const { container, add, waiter, release } = await held(lab);
    const daemon = await startDaemon(lab, '--workers', '1');
    const child = add();
    const worker = await waiter('--worker');
    child.kill('SIGKILL');
    await until(async () => !fs.existsSync(`/proc/${worker}`));
    release();
    const conf = bridgeOf(lab);
    expect(await lab.plugin('bridge', { command: 'DEL', conf, container })).toMatchObject({ exitCode: 0 });
    expect(await lab.plugin('bridge', { command: 'ADD', conf, container })).toMatchObject({ exitCode: 0 });
    expect(leasesIn(`${lab.tmp}/leases/podnet`)).toHaveLength(2);
    expect((await daemon.fetch('/readyz')).status).toBe(200);
  });

  test('end with a daemon that is killed, and their caller makes the call itself', async () => {
    const lab = await makeLab();
    const { add, waiter, release } = await held(lab);
    const daemon = await startDaemon(lab);
    const child = add();
    const worker = await waiter('--worker');
    process.kill(daemon.pid, 'SIGKILL');
    await until(async () => !fs.existsSync(`/proc/${worker}`));
    release();
    expect(await child.exited).toBe(0);
    expect(leasesIn(`${lab.tmp}/leases/podnet`)).toHaveLength(2);
    expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toHaveLength(1);
  });

  test('report code 11 when their worker is killed', async () => {
    const lab = await makeLab();
    const { add, waiter, release } = await held(lab);
    await startDaemon(lab);
    const child = add();
    process.kill(await waiter('--worker'), 'SIGKILL');
    const said = JSON.parse(await new Response(child.stdout).text());
    release();
    expect(await child.exited).toBe(1);
    expect(said).toMatchObject({ code: 11 });
    expect(said.msg).toContain('its worker ended (SIGKILL)');
  });

  test('do not wait for a worker that waits for them', async () => {
    const lab = await makeLab();
    // Not our file, so that the worker starts it; and it calls our plugin in turn.
    const dir = `${lab.tmp}/bin`;
    fs.mkdirSync(dir);
    fs.writeFileSync(`${dir}/wrapped`, `#!/bin/sh\nexec ${BIN_DIR}/host-local\n`, { mode: 0o755 });
    const daemon = await startDaemon(lab, '--workers', '1');
    const container = await lab.container();
    const conf = bridgeOf(lab, { type: 'wrapped' });
    const call = { conf, container, cniPath: `${dir}:${BIN_DIR}`, timeoutMs: 20_000 };
    expect(await lab.plugin('bridge', { ...call, command: 'ADD' })).toMatchObject({ exitCode: 0 });
    expect(await lab.plugin('bridge', { ...call, command: 'DEL' })).toMatchObject({ exitCode: 0 });
    expect(await servedBy(daemon)).toBe(2);
  });
});

/** An ADD that waits for the lock of the leases, which another process holds. */
async function held(lab: Lab): Promise<{
  container: Container;
  add: () => Bun.Subprocess<'pipe', 'pipe', 'pipe'>;
  waiter: (word: string) => Promise<number>;
  release: () => void;
}> {
  const container = await lab.container();
  const { waiter, release } = await holdLock(lab, `${lab.tmp}/leases/podnet`);
  const add = () => {
    const child = Bun.spawn(['nsenter', `--net=${lab.host.path}`, '--', `${BIN_DIR}/bridge`], {
      env: {
        ...directories(lab.tmp),
        CNI_COMMAND: 'ADD',
        CNI_CONTAINERID: container.id,
        CNI_NETNS: container.path,
        CNI_IFNAME: 'eth0',
        CNI_PATH: BIN_DIR,
      },
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'pipe',
    });
    child.stdin.write(JSON.stringify(bridgeOf(lab)));
    child.stdin.end();
    return child;
  };
  return { container, add, waiter, release };
}
