// Does `catena try` notice what is wrong, say it, and keep it away from the machine?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { CATENA, catena } from '../helpers/catena.ts';
import { run } from '../helpers/command.ts';
import { type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR, copyPlugins } from '../helpers/plugin.ts';
import { describeRoot, requiresLinkKind, testNeeding } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

const ISOLATED = path.join(ROOT, 'conflists/isolated-l2.conflist');
const LOOPBACK = path.join(ROOT, 'conflists/loopback.conflist');

/** Writes a list into the lab's directory. */
function write(lab: Lab, plugins: readonly object[], more: object = {}): string {
  const file = path.join(lab.tmp, 'test.conflist');
  fs.writeFileSync(file, JSON.stringify({ cniVersion: '1.1.0', name: 'testnet', plugins, ...more }));
  return file;
}

/** A link made of shell commands for each verb. It answers ADD with the result it got. */
function link(lab: Lab, name: string, verbs: Readonly<Record<string, string>>): string {
  const dir = path.join(lab.tmp, 'bin');
  fs.mkdirSync(dir, { recursive: true });
  const cases = Object.entries(verbs).map(([verb, commands]) => `  ${verb}) ${commands} ;;`);
  const script = [
    '#!/bin/sh',
    'export PATH="$PATH:/usr/sbin:/sbin"',
    'request=$(cat)',
    'case $CNI_COMMAND in',
    ...cases,
    'esac',
    `[ "$CNI_COMMAND" = ADD ] && printf '{"cniVersion":"1.1.0"}'`,
    'exit 0',
  ];
  fs.writeFileSync(path.join(dir, name), script.join('\n'), { mode: 0o755 });
  return dir;
}

const BRIDGE = {
  type: 'bridge',
  bridge: 'br-try',
  isGateway: true,
  ipam: { type: 'host-local', subnet: '10.99.0.0/24' },
};

async function tryJson(lab: Lab, file: string, ...options: string[]) {
  const finished = await catena(lab, ['try', '--json', ...options, file]);
  return { ...finished, report: JSON.parse(finished.stdout) };
}

describeRoot('catena try', () => {
  test('gives the fake host the devices that a list needs', async () => {
    await withHost(async lab => {
      // A bridge without an address gives the uplink back with its last port.
      const file = write(lab, [{ ...BRIDGE, isGateway: false, uplinkInterface: 'up0' }]);
      const { exitCode, stdout } = await catena(lab, ['try', file]);
      expect({ exitCode, stdout }).toMatchObject({
        exitCode: 1,
        stdout: expect.stringContaining('there is no such device'),
      });
      const given = await catena(lab, ['try', '--device', 'up0', file]);
      expect({ exitCode: given.exitCode, stderr: given.stderr }).toEqual({ exitCode: 0, stderr: '' });
      expect(given.stdout).toContain('left behind: nothing');
      const bad = await catena(lab, ['try', '--device', 'no/name', file]);
      expect({ exitCode: bad.exitCode, stderr: bad.stderr }).toMatchObject({
        exitCode: 1,
        stderr: expect.stringContaining('--device'),
      });
    });
  });

  test('reports a plugin that fails, undoes the others, and leaves nothing', async () => {
    await withHost(async lab => {
      const before = await lab.dump(lab.host);
      const file = write(lab, [BRIDGE, { type: 'tuning', sysctl: { 'net.no.such': '1' } }]);
      const { exitCode, stdout } = await catena(lab, ['try', file]);
      expect(exitCode).toBe(1);
      expect(stdout).toContain('FAILED');
      expect(stdout).toContain('net.no.such');
      expect(stdout).toContain('bridge + host-local, undone');
      expect(stdout).toContain('left behind: nothing');
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('reports what a container leaves behind: devices, rules, routes, files', async () => {
    await withHost(async lab => {
      const bin = link(lab, 'leaky', {
        ADD: [
          'ip link add leak0 type ifb',
          'ip rule add from 10.99.0.2 table 99',
          'ip route add 10.98.0.0/24 via 172.31.254.2',
          'mkdir -p /var/lib/leaky',
          'touch /var/lib/leaky/$CNI_CONTAINERID',
        ].join('; '),
      });
      const file = write(lab, [BRIDGE, { type: 'leaky' }]);
      const { exitCode, report } = await tryJson(lab, file, '--bin-dir', bin, '--bin-dir', BIN_DIR);
      expect(exitCode).toBe(1);
      expect(report.left).toEqual(
        expect.arrayContaining([
          'ifb leak0',
          expect.stringContaining('from 10.99.0.2/32 lookup 99'),
          'file /var/lib/leaky/catena-try-container',
        ]),
      );
      expect(report.kept).toContain('route 10.98.0.0/24 via 172.31.254.2 on outside0');
      expect(fs.existsSync('/var/lib/leaky')).toBe(false);
    });
  });

  test('knows what every container gets, where the list gives all one hardware address', async () => {
    await withHost(async lab => {
      // No name and no address of the container is in what it leaves.
      const route = (n: number) => `ip route add 10.98.${n}.0/24 via 172.31.254.2`;
      const bin = link(lab, 'leaky', {
        ADD: `case $CNI_CONTAINERID in *neighbour) ${route(2)};; *) ${route(1)};; esac`,
      });
      const file = write(lab, [{ type: 'leaky' }, BRIDGE, { type: 'tuning', mac: '02:00:00:00:00:07' }]);
      const { exitCode, report } = await tryJson(lab, file, '--bin-dir', bin, '--bin-dir', BIN_DIR);
      expect(exitCode).toBe(1);
      expect(report.left).toContain('route 10.98.1.0/24 via 172.31.254.2 on outside0');
    });
  });

  test('reports damage to the host', async () => {
    await withHost(async lab => {
      const bin = link(lab, 'rude', { ADD: 'ip route del default; ip link set outside0 mtu 1300' });
      const { report } = await tryJson(lab, write(lab, [{ type: 'rude' }]), '--bin-dir', bin);
      expect(report.left).toEqual([
        'deleted: route default via 172.31.254.2 on outside0',
        'outside0: mtu 1500 → 1300',
      ]);
    });
  });

  test('prevents plugins from writing to the machine', async () => {
    await withHost(async lab => {
      const dir = path.join(ROOT, 'dist');
      const writes = ['/etc', '/usr', '/opt', dir].map(
        where => `touch ${where}/catena-try-test 2>&2 || true`,
      );
      // A checkout below /tmp lies on a file system of the lab's own, in which writing is allowed and forgotten.
      const forgotten = dir.startsWith('/tmp/') ? [`+ file ${dir}/catena-try-test`] : [];
      const bin = link(lab, 'writer', { ADD: `${writes.join('; ')}; touch /run/a /tmp/b /var/lib/c` });
      const { report } = await tryJson(lab, write(lab, [{ type: 'writer' }]), '--bin-dir', bin);
      expect(report.verbs[0].plugins[0].files).toEqual([
        '+ file /run/a',
        '+ file /var/lib/c',
        '+ file /tmp/b',
        ...forgotten,
      ]);
      const there = ['/etc', '/usr', '/opt', dir, '/run'].map(where => path.join(where, 'catena-try-test'));
      expect([...there, '/run/a', '/tmp/b', '/var/lib/c'].filter(file => fs.existsSync(file))).toEqual([]);
    });
  });

  test('names and ends a process that a plugin has left behind', async () => {
    await withHost(async lab => {
      const sleeper = path.join(lab.tmp, 'bin', 'sleeper');
      const bin = link(lab, 'leaver', { ADD: `setsid ${sleeper} 600 <&- >&- 2>&- &` });
      fs.copyFileSync('/bin/sleep', sleeper);
      const { exitCode, report } = await tryJson(lab, write(lab, [{ type: 'leaver' }]), '--bin-dir', bin);
      expect([exitCode, report.left]).toEqual([1, ['process sleeper', 'process sleeper']]);
      expect((await run(['pgrep', '-f', sleeper])).stdout).toBe('');
    });
  });

  test('reports a broken promise', async () => {
    await withHost(async lab => {
      const bin = link(lab, 'lazy', {});
      const conf = { type: 'lazy', sysctl: { 'net.core.somaxconn': '77' } };
      const { exitCode, report } = await tryJson(lab, write(lab, [conf]), '--bin-dir', bin);
      expect(exitCode).toBe(1);
      expect(report.probes[0]).toMatchObject({
        outcome: 'failed',
        what: expect.stringContaining('somaxconn is 77'),
      });
    });
  });

  test('reports an interface that is not what the result says', async () => {
    await withHost(async lab => {
      const enter = 'nsenter --net="$CNI_NETNS" ip link';
      const told = '{"name":"eth0","mac":"02:00:00:00:00:07","mtu":1400,"sandbox":"%s"}';
      const bin = link(lab, 'liar', {
        ADD: `${enter} add eth0 mtu 1300 up type veth peer name x && printf '{"cniVersion":"1.1.0","interfaces":[${told}]}' "$CNI_NETNS"; exit`,
        DEL: `${enter} del eth0`,
      });
      const { exitCode, report } = await tryJson(lab, write(lab, [{ type: 'liar' }]), '--bin-dir', bin);
      expect([exitCode, report.probes[0]]).toEqual([
        1,
        {
          what: 'eth0 is up and matches the result',
          outcome: 'failed',
          seen: 'wrong: mac 02:00:00:00:00:07 of the result, mtu 1400 of the result',
        },
      ]);
    });
  });

  const HOST_PORTS = JSON.stringify({
    mac: '02:00:00:00:00:07',
    portMappings: [8080, 8081].map(hostPort => ({ hostPort, containerPort: 80, protocol: 'tcp' })),
  });
  const NO_HOST = { type: 'host-local', subnet: '10.98.0.0/24', routes: [{ dst: '0.0.0.0/0' }] };
  test.each<[string, readonly object[], string[]]>([
    ['ports beside each other, and a hardware address', [], ['--cap', HOST_PORTS]],
    ['containers that a policy keeps apart', [{ type: 'firewall', ingressPolicy: 'isolated' }], []],
    ['routes for packets from one address', [{ type: 'sbr' }], []],
    ['one hardware address for every container', [{ type: 'tuning', mac: '02-00-00-00-00-07' }], []],
    [
      'ports for some sources',
      [{ type: 'portmap', capabilities: { portMappings: true }, conditionsV4: ['-s', '10.0.0.0/8'] }],
      [],
    ],
  ])('takes no promise for broken that a list does not make: %s', async (_, more, options) => {
    await withHost(async lab => {
      const first = { ...BRIDGE, isDefaultGateway: true, hairpinMode: true, capabilities: { mac: true } };
      const ports = { type: 'portmap', capabilities: { portMappings: true } };
      const file = write(lab, [first, ...(more.length ? more : [ports])]);
      const { exitCode, report } = await tryJson(lab, file, '--keep-going', ...options);
      const failed = report.probes.filter(({ outcome }: { outcome: string }) => outcome === 'failed');
      expect({ exitCode, failed }).toEqual({ exitCode: 0, failed: [] });
    });
  });

  test('takes a device of the host for one container, and its router for another host', async () => {
    await withHost(async lab => {
      const file = write(lab, [{ type: 'host-device', device: 'up0', ipam: NO_HOST }]);
      const { exitCode, report } = await tryJson(lab, file, '--device', 'up0');
      expect({ exitCode, probes: report.probes }).toMatchObject({
        exitCode: 0,
        probes: [
          { what: 'a second container joins', outcome: 'skipped' },
          { outcome: 'ok' },
          { what: 'gateway 10.98.0.1 replies to the container', outcome: 'skipped' },
        ],
      });
    });
  });

  test('stops probing at the first broken promise, unless asked to keep going', async () => {
    await withHost(async lab => {
      const bin = link(lab, 'lazy', {});
      const sysctl = { 'net.core.somaxconn': '77', 'net.ipv4.tcp_fin_timeout': '7' };
      const file = write(lab, [{ type: 'lazy', sysctl }]);
      const failed = async (...options: string[]) => {
        const { report } = await tryJson(lab, file, '--bin-dir', bin, ...options);
        return report.probes.filter(({ outcome }: { outcome: string }) => outcome === 'failed').length;
      };
      expect(await failed()).toBe(1);
      expect(await failed('--keep-going')).toBe(2);
    });
  });

  test('reports a CHECK that fails, and still runs DEL', async () => {
    await withHost(async lab => {
      const bin = link(lab, 'picky', {
        CHECK: `printf '{"cniVersion":"1.1.0","code":101,"msg":"not as it was","details":"at all"}'; exit 1`,
      });
      const { exitCode, stdout } = await catena(lab, [
        'try',
        '--bin-dir',
        bin,
        write(lab, [{ type: 'picky' }]),
      ]);
      expect(exitCode).toBe(1);
      expect(stdout).toContain('FAILED  not as it was (code 101)\n          at all\n');
      expect(stdout).toContain('\nDEL ');
    });
  });

  test('passes arguments, capability arguments and the interface name on', async () => {
    await withHost(async lab => {
      const bin = link(lab, 'curious', {
        ADD: 'printf %s "$request" > /tmp/request; echo "$CNI_IFNAME $CNI_ARGS $(cat /tmp/request)" >&2; exit 1',
      });
      const file = write(lab, [{ type: 'curious', capabilities: { mac: true } }]);
      const cap = JSON.stringify({ mac: '02:00:00:00:00:01', ips: ['x'] });
      const options = ['--bin-dir', bin, '--ifname', 'net7', '--args', 'IgnoreUnknown=1;A=b', '--cap', cap];
      const { report } = await tryJson(lab, file, ...options);
      const { stderr } = report.verbs[0].failure;
      expect(stderr).toStartWith('net7 IgnoreUnknown=1;A=b ');
      expect(stderr).toContain('"runtimeConfig":{"mac":"02:00:00:00:00:01"}');
    });
  });

  test('names a missing plugin', async () => {
    await withHost(async lab => {
      const { exitCode, stdout } = await catena(lab, ['try', write(lab, [{ type: 'no-such-link' }])]);
      expect(exitCode).toBe(1);
      expect(stdout).toContain('Cannot find plugin "no-such-link"');
    });
  });

  test('runs when mounts cover the directories of its list and its plugins', async () => {
    await withHost(async lab => {
      const dir = fs.mkdtempSync('/run/catena-try-');
      try {
        copyPlugins(['loopback'], dir);
        fs.mkdirSync(path.join(dir, 'net.d'));
        fs.copyFileSync(LOOPBACK, path.join(dir, 'net.d/a.conflist'));
        const finished = await catena(lab, ['try', '--bin-dir', '.', 'net.d/a.conflist'], { cwd: dir });
        expect(finished).toMatchObject({ exitCode: 0, stderr: '' });
      } finally {
        fs.rmSync(dir, { recursive: true });
      }
    });
  });

  test('takes the name of a configured network, and says which one may have been meant', async () => {
    await withHost(async lab => {
      const conf = ['--conf-dir', path.join(ROOT, 'conflists')];
      const { report } = await tryJson(lab, 'isolated-l2', ...conf);
      expect(report).toMatchObject({ ok: true, network: 'isolated-l2', left: [] });
      const { exitCode, stdout, stderr } = await catena(lab, ['try', ...conf, 'isolated-l3']);
      expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
      expect(stderr).toContain('did you mean "isolated-l2"');
    });
  });

  test('prints no colours to a pipe, and everything in one object with --json', async () => {
    await withHost(async lab => {
      const { stdout } = await catena(lab, ['try', ISOLATED]);
      expect(stdout).not.toContain('\u001b');
      const { report, stderr } = await tryJson(lab, ISOLATED);
      expect(stderr).toBe('');
      expect(report).toMatchObject({ ok: true, network: 'isolated-l2', plugins: 1, left: [] });
      expect(report.verbs.map(({ verb }: { verb: string }) => verb)).toEqual(['ADD', 'CHECK', 'DEL']);
    });
  });

  test('prints colours to a terminal, unless NO_COLOR is set', async () => {
    await withHost(async lab => {
      // script(1) of bsdutils gives a program a terminal.
      const terminal = (env: Record<string, string>) =>
        lab.run(lab.host, ['script', '-qec', `${CATENA} try ${LOOPBACK}`, '/dev/null'], { env });
      expect((await terminal({})).stdout).toContain('\u001b[32m');
      expect((await terminal({ NO_COLOR: '1' })).stdout).not.toContain('\u001b[32m');
    });
  });
});

describe('catena try', () => {
  test('reports errors of a list before it creates anything', async () => {
    const { exitCode, stdout, stderr } = await run([CATENA, 'try', '/no/such.conflist']);
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
    expect(stderr).toContain('Cannot read network configuration "/no/such.conflist"');
  });

  const title = 'says what to do where namespaces are forbidden';
  const body = async () => {
    // Limits of a user namespace hold for those within it, and for no other process.
    const forbid =
      'echo 0 > /proc/sys/user/max_net_namespaces && echo 0 > /proc/sys/user/max_user_namespaces';
    const script = `${forbid} && exec ${CATENA} try ${LOOPBACK}`;
    const { exitCode, stdout, stderr } = await run([
      'unshare',
      '--user',
      '--map-root-user',
      'sh',
      '-c',
      script,
    ]);
    expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: '' });
    expect(stderr).toContain('Cannot create a fake host: unshare: ');
    expect(stderr).toContain('Run as root, or allow user namespaces');
  };
  const works = Bun.spawnSync(['unshare', '--user', '--map-root-user', 'true']).success;
  testNeeding(title, body, works ? undefined : 'needs user namespaces');
});

describe('catena try of limits', () => {
  testNeeding(
    'measures limited traffic, and skips limits that a list does not set',
    async () => {
      await withHost(async lab => {
        const limits = { type: 'bandwidth', egressRate: 20_000_000, egressBurst: 800_000 };
        const what = 'at most 20 Mbit out of the container';
        const left = await catena(lab, [
          'try',
          write(lab, [BRIDGE, { ...limits, unshapedSubnets: ['10.0.0.0/8'] }]),
        ]);
        expect(left.stdout).toContain(`skipped  ${what}: traffic with 10.99.0.1 is exempt from the limit`);
        const held = await catena(lab, [
          'try',
          write(lab, [BRIDGE, { ...limits, shapedSubnets: ['10.99.0.0/24'] }]),
        ]);
        expect(held.stdout).toMatch(new RegExp(`ok {7}${what}: [\\d.]+ Mbit`));
      });
    },
    requiresLinkKind('ifb'),
  );
});
