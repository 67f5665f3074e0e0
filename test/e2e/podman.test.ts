// Does Podman run containers on our executables, and is nothing left of them, however they ended?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { IMAGE } from '../helpers/busybox.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Machine, withMachine } from '../helpers/machine.ts';
import type { Row } from '../helpers/netns.ts';
import { type Podman, requiresPodman, startPodman } from '../helpers/podman.ts';
import { findReachable, findUnreachable, PUBLISHED } from '../helpers/published.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

// Many processes each, which a busy machine takes its time for.
setDefaultTimeout(deadline(180_000));

const PUBLISH = ['--publish', '8080:80', '--publish', '5353:53/udp'];
const REMOVE = ['rm', '--force', '--time', '0'];

async function withPodman(body: (machine: Machine, podman: Podman) => Promise<void>): Promise<void> {
  await withMachine(async machine => body(machine, await startPodman(machine)));
}

describeRoot(
  'Podman',
  () => {
    test('publishes ports with its default list, also after a restart, and leaves nothing', async () => {
      await withPodman(async (machine, podman) => {
        const { lab } = machine;
        const outside = await lab.outside();
        const before = await machine.traces();
        const web = await podman.runContainer('web', ...PUBLISH);
        const other = await podman.runContainer('other');
        expect(web.addresses.podman?.v4).toBe('10.88.0.2');
        expect(await podman.run('exec', 'web', 'ping', '-c', '1', '10.88.0.1')).toContain('0% packet loss');
        const from = { 'another container': machine.netnsOf(other.pid) };
        expect(await findUnreachable(lab, { container: machine.netnsOf(web.pid), outside, from })).toEqual(
          [],
        );
        expect(await ping(lab, machine.netnsOf(web.pid), outside.address.v4)).toBe(true);

        await podman.run('restart', '--time', '0', 'web');
        const restarted = await podman.inspect('web');
        expect(restarted.pid).not.toBe(web.pid);
        expect(
          await findUnreachable(lab, { container: machine.netnsOf(restarted.pid), outside, from }),
        ).toEqual([]);

        await podman.run(...REMOVE, 'web', 'other');
        expect(await machine.settled(before)).toEqual(before);
        expect(await findReachable(lab, outside)).toEqual([]);
      });
    });

    test('is served by the daemon with its default list unchanged', async () => {
      await withPodman(async (machine, podman) => {
        machine.start(['/opt/cni/bin/catena', 'daemon'], `${machine.lab.tmp}/daemon.log`);
        const unix = machine.path('/run/catena/catena.sock');
        await until(async () => fs.existsSync(unix));
        const outside = await machine.lab.outside();
        // The daemon's workers come and go as it likes.
        const { processes: _, ...before } = await machine.traces();
        const web = await podman.runContainer('web', ...PUBLISH);
        const container = machine.netnsOf(web.pid);
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        await podman.run(...REMOVE, 'web');
        await until(async () => {
          const { processes: __, ...now } = await machine.traces();
          return Bun.deepEquals(now, before);
        });
        const state = await fetch('http://catena/v1/state', { unix, signal: AbortSignal.timeout(10_000) });
        // Four plugins; podman calls DEL of each at least once.
        expect(((await state.json()) as { served: number }).served).toBeGreaterThanOrEqual(8);
      });
    });

    test.each([
      ['the container', ['/bin/sleep']],
      ['the container and its monitor', ['/conmon', '/bin/sleep']],
    ])(
      'cleans up with the next command after %s is killed, and the ports are free again',
      async (_what, programs) => {
        await withPodman(async (machine, podman) => {
          const outside = await machine.lab.outside();
          const before = await machine.traces();
          const web = await podman.runContainer('web', ...PUBLISH);
          const pids = machine.processes(...programs);
          expect(pids).toHaveLength(programs.length);
          await machine.ok(['kill', '-KILL', ...pids.map(String)]);
          await podman.run(...REMOVE, 'web');
          expect(await machine.settled(before)).toEqual(before);
          const again = await podman.runContainer('web', ...PUBLISH);
          expect(again.addresses).not.toEqual(web.addresses);
          const container = machine.netnsOf(again.pid);
          expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
          await podman.run(...REMOVE, 'web');
          expect(await machine.settled(before)).toEqual(before);
        });
      },
    );

    test('starts containers again after a reboot without conflicts with old state', async () => {
      await withPodman(async (machine, podman) => {
        const outside = await machine.lab.outside();
        const before = await machine.traces();
        for (const name of ['web', 'other'])
          await podman.runContainer(name, ...(name === 'web' ? PUBLISH : []));
        await machine.reboot();
        await podman.run('start', 'web');
        const { pid } = await podman.inspect('web');
        expect(await findUnreachable(machine.lab, { container: machine.netnsOf(pid), outside })).toEqual([]);
        await podman.run('start', 'other');
        await podman.run(...REMOVE, 'web', 'other');
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('restores flushed rules by a reload, and removes containers without them', async () => {
      await withPodman(async (machine, podman) => {
        const outside = await machine.lab.outside();
        const before = await machine.traces();
        const web = await podman.runContainer('web', ...PUBLISH);
        await machine.ok(['nft', 'flush', 'ruleset']);
        expect(await findReachable(machine.lab, outside)).toEqual([]);
        await podman.run('network', 'reload', 'web');
        expect(await podman.inspect('web')).toEqual(web);
        const container = machine.netnsOf(web.pid);
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        await machine.ok(['nft', 'flush', 'ruleset']);
        await podman.run(...REMOVE, 'web');
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('has its flushed rules reported by doctor, restored by repair, and removed with the container, which may be started again', async () => {
      await withPodman(async (machine, podman) => {
        const outside = await machine.lab.outside();
        const before = await machine.traces();
        const web = await podman.runContainer('web', ...PUBLISH);
        const container = machine.netnsOf(web.pid);
        const catena = async (...args: string[]) => {
          const { exitCode, stdout, stderr } = await machine.run(['/opt/cni/bin/catena', ...args, '--json']);
          return { exitCode, stderr, ...JSON.parse(stdout) };
        };
        const doctor = async () => {
          const { findings } = await catena('doctor');
          return findings.filter(({ id }: { id: string }) => id === 'attachments');
        };
        expect(await doctor()).toMatchObject([{ severity: 'ok' }]);
        expect(await catena('ls')).toMatchObject({
          attachments: [{ containerId: web.id, netns: web.netns }],
        });
        await machine.ok(['nft', 'flush', 'ruleset']);
        expect(await findReachable(machine.lab, outside)).toEqual([]);
        expect(await doctor()).toMatchObject([
          {
            severity: 'error',
            found: 'something flushed nf_tables: the rules of 1 container (web) of network "podman" are gone',
            mend: 'catena repair podman',
          },
        ]);
        expect(await catena('repair', 'podman')).toMatchObject({
          exitCode: 0,
          attachments: [{ state: 'mended' }],
        });
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        expect(await doctor()).toMatchObject([{ severity: 'ok' }]);

        await podman.run('stop', '-t', '0', 'web');
        await podman.run('start', 'web');
        expect(await doctor()).toMatchObject([{ severity: 'ok' }]);
        await machine.ok(['nft', 'flush', 'ruleset']);
        expect(await doctor()).toMatchObject([{ severity: 'error', mend: 'catena repair podman' }]);
        expect(await catena('repair')).toMatchObject({ exitCode: 0, attachments: [{ state: 'mended' }] });
        expect(await doctor()).toMatchObject([{ severity: 'ok' }]);

        await podman.run(...REMOVE, 'web');
        expect(await catena('ls')).toMatchObject({ attachments: [] });
        expect(await catena('repair')).toMatchObject({ exitCode: 0, recovered: [], attachments: [] });
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('is watched: its damaged containers are repaired, and removed as before', async () => {
      await withPodman(async (machine, podman) => {
        const outside = await machine.lab.outside();
        const settings = { watch: 'repair', watchSeconds: 1 };
        machine.write('/etc/catena.json', JSON.stringify(settings));
        const argv = ['/opt/cni/bin/catena', 'daemon', '--config', '/etc/catena.json'];
        machine.start(argv, `${machine.lab.tmp}/daemon.log`);
        const unix = machine.path('/run/catena/catena.sock');
        await until(async () => fs.existsSync(unix));
        const watch = async () => {
          const state = await fetch('http://catena/v1/state', { unix, signal: AbortSignal.timeout(10_000) });
          return ((await state.json()) as { watch: Row }).watch;
        };
        const { processes: _, ...before } = await machine.traces();
        const web = await podman.runContainer('web', ...PUBLISH);
        const container = machine.netnsOf(web.pid);
        const scenes: [string, readonly string[], typeof container | undefined][] = [
          ['nft flush ruleset', ['nft', 'flush', 'ruleset'], undefined],
          ['bridge address removed', ['ip', 'addr', 'flush', 'dev', 'cni-podman0'], undefined],
          ['bridge down', ['ip', 'link', 'set', 'cni-podman0', 'down'], undefined],
          ['default route of the container deleted', ['ip', 'route', 'del', 'default'], container],
        ];
        let repaired = 0;
        for (const [name, damage, where] of scenes) {
          const startedAt = Date.now();
          await machine.lab.run(where ?? machine.lab.host, damage);
          await until(async () => ((await watch()).repairs?.repaired ?? 0) > repaired, { withinMs: 20_000 });
          process.stdout.write(`podman: ${name}: repaired after ${Date.now() - startedAt} ms\n`);
          expect([name, await findUnreachable(machine.lab, { container, outside })]).toEqual([name, []]);
          await Bun.sleep(1_200);
          repaired = (await watch()).repairs.repaired;
        }
        expect((await watch()).givenUp).toEqual([]);
        await podman.run(...REMOVE, 'web');
        await until(async () => {
          const { processes: __, ...now } = await machine.traces();
          return Bun.deepEquals(now, before);
        });
      });
    });

    test('shares the network and the ports among the containers of a pod', async () => {
      await withPodman(async (machine, podman) => {
        const outside = await machine.lab.outside();
        const before = await machine.traces();
        await podman.run(
          'pod',
          'create',
          '--infra-image',
          IMAGE,
          '--cgroup-parent',
          `/${machine.cgroup}`,
          ...PUBLISH,
          'shop',
        );
        const web = await podman.runContainer('web', '--pod', 'shop');
        const container = machine.netnsOf(web.pid);
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        await podman.run('pod', ...REMOVE, 'shop');
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('makes networks of its own: two families, a fixed address, one joined and left at run time', async () => {
      await withPodman(async (machine, podman) => {
        const { lab } = machine;
        const outside = await lab.outside();
        const before = await machine.traces();
        const dual = ['--ipv6', '--subnet', '10.90.0.0/24', '--subnet', 'fd00:90::/64'];
        await podman.run('network', 'create', ...dual, 'dual');
        await podman.run('network', 'create', '--internal', '--subnet', '10.91.0.0/24', 'inside');
        const fixed = ['--network', 'dual:ip=10.90.0.77,ip=fd00:90::77,mac=02:00:00:00:90:77'];
        const web = await podman.runContainer('web', ...fixed, ...PUBLISH);
        const peer = await podman.runContainer('peer', '--network', 'inside');
        const container = machine.netnsOf(web.pid);
        expect(web.addresses.dual).toEqual({ v4: '10.90.0.77', v6: 'fd00:90::77' });
        const [eth0] = await lab.ip(container, 'link', 'show', 'eth0');
        expect(eth0?.address).toBe('02:00:00:00:90:77');

        // The ports are passed to each network of a container; they stay with the first.
        await podman.run('network', 'connect', 'inside', 'web');
        const { addresses } = await podman.inspect('web');
        expect(await ping(lab, machine.netnsOf(peer.pid), addresses.inside?.v4 ?? '')).toBe(true);
        const families = ['v4', 'v6'] as const;
        expect(await findUnreachable(lab, { container, outside, families })).toEqual([]);
        await podman.run('network', 'disconnect', 'inside', 'web');
        expect((await lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual(['lo', 'eth0']);
        expect(await findUnreachable(lab, { container, outside, families })).toEqual([]);

        await podman.run(...REMOVE, 'web', 'peer');
        await podman.run('network', 'rm', 'dual', 'inside');
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test('forwards ports by one of two networks, and by the other one after the first is left', async () => {
      await withPodman(async (machine, podman) => {
        const outside = await machine.lab.outside();
        const before = await machine.traces();
        await podman.run('network', 'create', '--subnet', '10.92.0.0/24', 'second');
        const web = await podman.runContainer(
          'web',
          '--network',
          'podman',
          '--network',
          'second',
          ...PUBLISH,
        );
        const container = machine.netnsOf(web.pid);
        expect(Object.keys(web.addresses).sort()).toEqual(['podman', 'second']);
        // A server of UDP that does not mind addresses answers by the later network, whose default route comes first.
        const ports = PUBLISHED.filter(({ protocol }) => protocol === 'tcp');
        expect(await findUnreachable(machine.lab, { container, outside, ports })).toEqual([]);
        // Whichever has the ports, they go on with the other.
        await podman.run('network', 'disconnect', 'podman', 'web');
        expect(await findUnreachable(machine.lab, { container, outside })).toEqual([]);
        await machine.ok(['kill', '-KILL', String(web.pid)]);
        await podman.run(...REMOVE, 'web');
        await podman.run('network', 'rm', 'second');
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    test.each([
      ['bridge-full', ['v4', 'v6'], ['lo', 'eth0']],
      ['two-networks', ['v4'], ['lo', 'eth0', 'net1']],
    ] as const)('uses our conflist %s unchanged', async (name, families, links) => {
      await withPodman(async (machine, podman) => {
        const outside = await machine.lab.outside();
        const conflist = fs.readFileSync(
          path.resolve(import.meta.dir, `../../conflists/${name}.conflist`),
          'utf8',
        );
        machine.write(`/etc/cni/net.d/10-${name}.conflist`, conflist);
        const before = await machine.traces();
        const web = await podman.runContainer('web', '--network', name, ...PUBLISH);
        const peer = await podman.runContainer('peer', '--network', name);
        const container = machine.netnsOf(web.pid);
        expect((await machine.lab.ip(container, 'link')).map(({ ifname }) => ifname)).toEqual([...links]);
        const from = { 'another container': machine.netnsOf(peer.pid) };
        expect(await findUnreachable(machine.lab, { container, outside, from, families })).toEqual([]);
        const ours = [name, web.netns, '--container-id', web.id];
        expect(await machine.ok(['/opt/cni/bin/catena', 'check', ...ours])).toBe('');
        // What was configured when a container started counts until it is gone.
        fs.rmSync(machine.path(`/etc/cni/net.d/10-${name}.conflist`));
        await machine.ok(['kill', '-KILL', String(web.pid)]);
        await podman.run(...REMOVE, 'web', 'peer');
        expect(await machine.settled(before)).toEqual(before);
      });
    });

    // For a reload, podman asks for the addresses that the container has. It looks for their subnets in "ranges" alone.
    test.each(['limited-bandwidth', 'tuned-sysctl', 'static-address', 'point-to-point'])(
      'reloads a container of our conflist %s, which keeps its addresses',
      async name => {
        await withPodman(async (machine, podman) => {
          const file = path.resolve(import.meta.dir, `../../conflists/${name}.conflist`);
          machine.write(`/etc/cni/net.d/10-${name}.conflist`, fs.readFileSync(file, 'utf8'));
          const before = await machine.traces();
          const web = await podman.runContainer('web', '--network', name);
          expect(web.addresses[name]?.v4).not.toBe('');
          await podman.run('network', 'reload', 'web');
          expect(await podman.inspect('web')).toEqual(web);
          expect(await podman.run('exec', 'web', 'ip', 'address')).toContain(web.addresses[name]?.v4 ?? '-');
          await podman.run(...REMOVE, 'web');
          expect(await machine.settled(before)).toEqual(before);
        });
      },
    );
  },
  requires('ip', 'nft'),
  requiresPodman(),
);
