// Can the daemon do all of its work with the capabilities that the printed DaemonSet gives it?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { CATENA } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { childrenOf } from '../helpers/children.ts';
import { run } from '../helpers/command.ts';
import { type Container, directories, type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { echo, startServer } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const CAP = {
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
  bandwidth: {
    ...{ ingressRate: 100_000_000, ingressBurst: 1_000_000 },
    ...{ egressRate: 100_000_000, egressBurst: 1_000_000 },
  },
};

/** What the manifest adds for a container. */
async function capabilities(): Promise<string[]> {
  const { stdout } = await run([CATENA, 'install', '--print', 'daemonset']);
  // biome-ignore lint/suspicious/noExplicitAny: the manifest is checked by its own test
  const { spec } = Bun.YAML.parse(stdout) as any;
  const { drop, add } = spec.template.spec.containers[0].securityContext.capabilities;
  expect(drop).toEqual(['ALL']);
  return add;
}

/** A command line that runs another one as root with these capabilities at most, as container runtimes do. */
function confined(names: readonly string[]): string[] {
  const some = ['-all', ...names.map(name => `+${name.toLowerCase()}`)].join(',');
  return ['setpriv', '--bounding-set', some, '--inh-caps', '-all', '--'];
}

/** Started as the manifest starts it; this process stands for process 1, whose mounts it uses. */
async function startConfined(lab: Lab, names: readonly string[]) {
  const dirs = directories(lab.tmp);
  const env = ['env', ...Object.entries(dirs).map(pair => pair.join('='))];
  const nsenter = ['nsenter', `--target=${process.pid}`, '--mount', '--'];
  const child = lab.start(lab.host, [...env, ...confined(names), ...nsenter, CATENA, 'daemon']);
  const socket = `${dirs.CATENA_RUN_DIR}/catena.sock`;
  await until(() => fs.existsSync(socket));
  return { child, socket };
}

/** CapBnd of capabilities(7), as in /proc/<pid>/status. */
function boundingSetOf(pid: number): string {
  return /^CapBnd:\t(\S+)$/m.exec(fs.readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? '';
}

function withBackend(list: Row, backend: string): Row {
  const chosen = list.plugins.map((plugin: Row) =>
    plugin.type === 'portmap' ? { ...plugin, backend } : plugin,
  );
  return { ...list, plugins: [...chosen, { type: 'firewall', backend }] };
}

describeRoot(
  'a daemon with the capabilities of the DaemonSet',
  () => {
    const makeLab = useLabs();

    test.each(['nftables', 'iptables'])(
      'adds, checks and deletes every plugin of ours, with %s',
      async backend => {
        const lab = await makeLab();
        const names = await capabilities();
        const { child, socket } = await startConfined(lab, names);
        const chain = writeChain(lab, withBackend(fullChain(lab), backend));
        const [web, other] = [await lab.container(), await lab.container()];
        const outside = await lab.outside();
        const devices = async () => (await lab.ip(lab.host, 'link', 'show')).map(({ ifname }) => ifname);
        const before = await devices();
        // Docker names namespaces by process.
        const holder = lab.start(other, ['sleep', '600']);
        await until(() => sameNamespace(`/proc/${holder.pid}/ns/net`, other.path));
        const byProcess: Container = { ...other, path: `/proc/${holder.pid}/ns/net` };

        await chain.add(web, { cap: CAP });
        await chain.add(byProcess);
        const [addresses = { addr_info: [] }] = await lab.ip(web, 'address', 'show', 'eth0');
        expect(addresses.addr_info.map(({ scope }: Row) => scope)).toContain('global');
        const server = await startServer(lab, web, { protocol: 'tcp', port: 80 });
        const reply = await echo(lab, outside, {
          protocol: 'tcp',
          address: outside.hostAddress.v4,
          port: 8080,
        });
        expect(reply?.text).toBe('hello');
        await server.stop();
        expect((await chain.run('check', web, { cap: CAP })).exitCode).toBe(0);
        const keep = ['--valid', `${web.id}/eth0`, '--valid', `${other.id}/eth0`];
        expect((await chain.run('gc', web, { args: keep })).exitCode).toBe(0);
        expect((await chain.run('status', web)).exitCode).toBe(0);
        expect((await chain.run('del', web, { cap: CAP })).exitCode).toBe(0);
        expect((await chain.run('del', byProcess)).exitCode).toBe(0);
        // The empty bridge waits for the next container.
        expect(await devices()).toEqual([...before, 'br0']);

        // All of that was done there, and there only.
        const metrics = await (await fetch('http://catena/metrics', { unix: socket })).text();
        const lines = metrics.split('\n').filter(line => /^catena_(requests|declined)_total/.test(line));
        expect(lines.sort()).toEqual(
          ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS'].map(verb => {
            return `catena_requests_total{verb="${verb}",network="podnet",code="0"} ${['ADD', 'DEL'].includes(verb) ? 2 : 1}`;
          }),
        );
        const sets = [child.pid, ...childrenOf(child.pid)].map(boundingSetOf);
        expect(sets.length).toBeGreaterThan(1);
        const { stdout } = await run([...confined(names), 'grep', 'CapBnd', '/proc/self/status']);
        expect(new Set(sets)).toEqual(new Set([stdout.trim().split('\t')[1] ?? '']));

        // nsenter executes the daemon, so the signal of the kubelet ends it in order.
        child.kill('SIGTERM');
        expect(await child.exited).toBe(0);
      },
    );

    test.each(['SYS_ADMIN', 'SYS_CHROOT', 'SYS_PTRACE'])(
      'cannot enter the mounts of the host without %s',
      async missing => {
        const lab = await makeLab();
        const some = (await capabilities()).filter(name => name !== missing);
        const enter = ['nsenter', `--target=${process.pid}`, '--mount', '--', 'true'];
        expect((await lab.run(lab.host, [...confined(some), ...enter])).exitCode).toBe(1);
      },
    );

    test('has a set in which nothing is for show: without NET_ADMIN no device can be made', async () => {
      const lab = await makeLab();
      const some = (await capabilities()).filter(name => name !== 'NET_ADMIN');
      const { child } = await startConfined(lab, some);
      const chain = writeChain(lab, fullChain(lab));
      const added = await chain.run('add', await lab.container());
      expect(added.exitCode).toBe(1);
      expect(added.stdout + added.stderr).toContain('EPERM');
      child.kill('SIGTERM');
      expect(await child.exited).toBe(0);
    });
  },
  requires('setpriv', 'nsenter', 'iptables'),
);

describeRoot('the installing container of the DaemonSet', () => {
  const makeLab = useLabs();

  test('needs no capability to install, to update and to uninstall', async () => {
    const lab = await makeLab();
    const [bin, conf] = ['bin', 'net.d'].map(name => path.join(lab.tmp, name));
    const list = path.join(lab.tmp, 'podnet.conflist');
    fs.writeFileSync(list, JSON.stringify(fullChain(lab)));
    const dirs = ['--bin-dir', bin ?? '', '--conf-dir', conf ?? ''];
    const install = () => lab.run(lab.host, [...confined([]), CATENA, 'install', list, ...dirs]);
    expect((await install()).exitCode).toBe(0);
    expect((await install()).stdout).toContain('same     bridge');
    const called = await run([path.join(bin ?? '', 'bridge')], { env: { CNI_COMMAND: 'VERSION' } });
    expect(called.exitCode).toBe(0);
    const removed = await lab.run(lab.host, [...confined([]), CATENA, 'uninstall', ...dirs], {
      env: directories(lab.tmp),
    });
    expect(removed.exitCode).toBe(0);
    expect(fs.readdirSync(bin ?? '')).toEqual([]);
  });
});

function sameNamespace(one: string, other: string): boolean {
  const [a, b] = [one, other].map(file => fs.statSync(file, { throwIfNoEntry: false })?.ino);
  return a !== undefined && a === b;
}
