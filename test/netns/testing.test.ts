// Does the harness for plugin authors show what a plugin does, and do our plugins leave nothing behind whatever fails?
import { describe, expect, test } from 'bun:test';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { signalGroup } from '../../src/files/process-stat.ts';
import { startBeside } from '../../src/lab/play.ts';
import {
  type CallOptions,
  type Container,
  diffKernelStates,
  failAtEveryRequest,
  type Namespace,
  sweepFaults,
  type TestHost,
  withHost,
} from '../../src/lab/testing/index.ts';
import { createLink, removeLink } from '../../src/netlink/rtnl/link.ts';
import { CniError, definePlugin, nothingToDo, PluginConfig } from '../../src/plugin/index.ts';
import { run } from '../helpers/command.ts';
import { type Dump, dumpKernelState } from '../helpers/dump.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import { describeInOrder } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

const BASE = { cniVersion: '1.1.0', name: 'podnet' };

/** A second way through a plugin of which one is tried anyway. */
const testInDepth = (name: string, body: () => Promise<void>) => void (IS_SAMPLE || test(name, body));

/** Makes a bridge on the host and one in the container; forgets the first when told so. */
const twin = (forgets = false) =>
  definePlugin({
    name: 'twin',
    config: PluginConfig,
    netns: 'required',
    add(call) {
      const { ifname } = call.env;
      createLink(call.host, { name: 'twin0', kind: 'bridge' });
      if (!forgets) call.onFailure('remove twin0', () => removeLink(call.host, 'twin0'));
      createLink(call.container, { name: ifname, kind: 'bridge' });
      call.onFailure(`remove ${ifname}`, () => removeLink(call.container, ifname));
      call.log.warn('made both');
      return { interfaces: [{ name: ifname, sandbox: call.env.netns }] };
    },
    check() {
      throw new CniError(117, 'never right');
    },
    del(call) {
      removeLink(call.host, 'twin0');
      if (call.findContainerNetns()) removeLink(call.container, call.env.ifname);
    },
    gc: nothingToDo('a sample'),
    status: nothingToDo('a sample'),
  });

async function ipLinks(host: TestHost, place: Namespace): Promise<string[]> {
  const { stdout } = await host.run(place, ['ip', '-j', 'link', 'show']);
  return JSON.parse(stdout).map(({ ifname }: { ifname: string }) => ifname);
}

function isRunning(pid: number): boolean {
  const status = `/proc/${pid}/status`;
  return existsSync(status) && !readFileSync(status, 'utf8').includes('Z (zombie)');
}

describeInOrder('testing', () => {
  test('a program that closes its standard error without a word is not left running beside the host', async () => {
    await withHost(async ({ dir, namespace }) => {
      const [mute, noted] = [`${dir}/mute`, `${dir}/pid`];
      writeFileSync(mute, `#!/bin/sh\necho $$ > ${noted}\nexec 2>&-\nexec sleep 300\n`, { mode: 0o755 });
      const begun = startBeside(mute, namespace.netns);
      await expect(begun).rejects.toThrow(`Cannot use "${mute}"`);
      const pid = Number(readFileSync(noted, 'utf8'));
      try {
        await until(() => !isRunning(pid), { withinMs: 1_000 });
      } finally {
        signalGroup(pid, 'SIGKILL');
      }
    });
  });

  describe('TestHost.call()', () => {
    test('runs a definition inside the fake host, and shows its result and its log', async () => {
      await withHost(async host => {
        const container = host.container();
        const { exitCode, result, stderr } = await host.call(twin(), 'ADD', {
          conf: { ...BASE, type: 'twin' },
          container,
        });
        expect({ exitCode, result }).toEqual({
          exitCode: 0,
          result: { cniVersion: '1.1.0', interfaces: [{ name: 'eth0', sandbox: container.path }] },
        });
        expect(JSON.parse(stderr)).toMatchObject({ level: 'warn', message: 'made both' });
        expect(await ipLinks(host, host.namespace)).toEqual(['lo', 'twin0']);
        expect(await ipLinks(host, container)).toEqual(['lo', 'eth0']);
        expect(existsSync('/sys/class/net/twin0')).toBe(false);
      });
    });

    test('gives back the error object', async () => {
      await withHost(async host => {
        const conf = { ...BASE, type: 'twin' };
        const { exitCode, error } = await host.call(twin(), 'CHECK', { conf, container: host.container() });
        expect({ exitCode, error }).toEqual({
          exitCode: 1,
          error: { cniVersion: '1.1.0', code: 117, msg: 'never right' },
        });
      });
    });

    test('lets calls of definitions wait for each other, each on its own host', async () => {
      const before = { ...process.env };
      await Promise.all(
        [1, 2, 3].map(() =>
          withHost(async host => {
            const call = { conf: { ...BASE, type: 'twin' }, container: host.container() };
            expect((await host.call(twin(), 'ADD', call)).exitCode).toBe(0);
            expect(await ipLinks(host, host.namespace)).toEqual(['lo', 'twin0']);
          }),
        ),
      );
      expect(process.env).toEqual(before);
    });

    test('runs an executable, which finds its IPAM plugin', async () => {
      await withHost(async host => {
        const call = { conf: bridgeConf(host), container: host.container(), pluginDirs: [BIN_DIR] };
        const { result } = await host.call(`${BIN_DIR}/bridge`, 'ADD', call);
        expect(result?.ips).toMatchObject([{ address: '10.88.0.2/24' }, { address: 'fd88::2/64' }]);
        expect(await ipLinks(host, host.namespace)).toContain('br0');
      });
    });
  });

  describe('TestHost.run()', () => {
    test('ends what does not end, with its children', async () => {
      await withHost(async host => {
        const script = 'sleep 300 & echo started; wait';
        const { late, stdout } = await host.run(host.namespace, ['sh', '-c', script], { timeoutMs: 300 });
        expect({ late, stdout }).toEqual({ late: true, stdout: 'started\n' });
        expect((await run(['ip', 'netns', 'pids', host.namespace.name])).stdout).toBe('');
      });
    });

    test.each(['yes', 'setsid yes & sleep 0.05'])(
      'takes no more than a runtime takes of what "%s" prints',
      async script => {
        await withHost(async host => {
          const { stdout, late } = await host.run(host.namespace, ['sh', '-c', script], { timeoutMs: 3_000 });
          expect([late, stdout.length < 17 << 20]).toEqual([false, true]);
          const ended = async () => (await run(['ip', 'netns', 'pids', host.namespace.name])).stdout === '';
          await until(ended);
        });
      },
    );

    test('hands over standard input whole, also to who does not read it', async () => {
      await withHost(async host => {
        const stdin = 'x'.repeat(1 << 20);
        expect((await host.run(host.namespace, ['wc', '-c'], { stdin })).stdout.trim()).toBe(String(1 << 20));
        expect((await host.run(host.namespace, ['true'], { stdin })).exitCode).toBe(0);
      });
    });

    test('a script may open its streams by their names', async () => {
      await withHost(async host => {
        const script = 'echo words > /dev/stderr; cat /dev/stdin > /dev/stdout';
        const ended = await host.run(host.namespace, ['sh', '-c', script], { stdin: 'request' });
        expect(ended).toMatchObject({ exitCode: 0, stdout: 'request', stderr: 'words\n' });
      });
    });
  });

  test('withHost() leaves nothing, also when its body throws', async () => {
    let path = '';
    let dir = '';
    const broken = withHost(async host => {
      ({ path } = host.container());
      ({ dir } = host);
      throw new Error('no');
    });
    expect(broken).rejects.toThrow('no');
    await broken.catch(() => {});
    expect([existsSync(path), existsSync(dir)]).toEqual([false, false]);
  });

  test('diffKernelStates() tells what a plugin did, and that nothing is left of it', async () => {
    await withHost(async host => {
      const container = host.container();
      const call = { conf: { ...BASE, type: 'twin' }, container };
      const before = host.state();
      await host.call(twin(), 'ADD', call);
      expect(diffKernelStates(before, host.state())).toEqual([
        'host: + bridge twin0',
        `${container.id}: + bridge eth0`,
      ]);
      await host.call(twin(), 'DEL', call);
      expect(diffKernelStates(before, host.state())).toEqual([]);
    });
  });

  describe('failAtEveryRequest()', () => {
    test('goes through all requests of a definition', async () => {
      await withHost(async host => {
        const call = { conf: { ...BASE, type: 'twin' }, container: host.container() };
        const reports = await failAtEveryRequest(host, twin(), call);
        expect(reports.map(({ what, failed }) => [what, failed])).toEqual([
          ['create link "twin0" of kind bridge', true],
          ['create link "eth0" of kind bridge', true],
        ]);
      });
    });

    test('finds what a plugin forgets', async () => {
      await withHost(async host => {
        const call = { conf: { ...BASE, type: 'twin' }, container: host.container() };
        expect(failAtEveryRequest(host, twin(true), call)).rejects.toThrow(
          'Failed ADDs leave something behind:\n  request 2 (create link "eth0" of kind bridge): host: + bridge twin0',
        );
      });
    });
  });

  describe('a failing request leaves no trace of ADD', () => {
    test('bridge with host-local, on a bridge that others use', async () => {
      await withHost(async host => {
        const call = { conf: bridgeConf(host), container: host.container(), pluginDirs: [BIN_DIR] };
        await addFirst(host, call.conf);
        const reports = await sweep(host, 'bridge', call);
        expect(reports.length).toBeGreaterThan(15);
      });
    });

    testInDepth('bridge with host-local, when it makes the bridge', async () => {
      await withHost(async host => {
        const call = { conf: bridgeConf(host), container: host.container(), pluginDirs: [BIN_DIR] };
        // What all networks share stays when the first container goes: forwarding, and the rules behind masquerading.
        const { container, result } = await addFirst(host, call.conf);
        await host.call(`${BIN_DIR}/bridge`, 'DEL', { ...call, container, prevResult: result });
        // The bridge waits for the next container.
        expect(await host.run(host.namespace, ['ip', 'link', 'delete', 'br0'])).toMatchObject({
          exitCode: 0,
        });
        const reports = await sweep(host, 'bridge', call);
        expect(reports.map(({ what }) => what)).toContain('create link "br0" of kind bridge');
      });
    });

    testInDepth('ptp with host-local, for a container that has IPv6 turned off', async () => {
      await withHost(async host => {
        const { bridge: _, isDefaultGateway: __, hairpinMode: ___, ipam, ...rest } = bridgeConf(host);
        const routes = [{ dst: '0.0.0.0/0' }, { dst: '::/0' }];
        const conf = { ...rest, type: 'ptp', mtu: 1400, ipam: { ...ipam, routes } };
        const [earlier, container] = [host.container(), host.container()];
        // What all networks share stays when the first container goes: forwarding, and the rules behind masquerading.
        for (const verb of ['ADD', 'DEL']) {
          await host.call(`${BIN_DIR}/ptp`, verb, { conf, container: earlier, pluginDirs: [BIN_DIR] });
        }
        const call = { conf, container, pluginDirs: [BIN_DIR] };
        const turnOff = ['sysctl', '-w', 'net.ipv6.conf.all.disable_ipv6=1'];
        expect(await host.run(container, turnOff)).toMatchObject({ exitCode: 0 });
        const reports = await sweep(host, 'ptp', call);
        expect(reports.length).toBeGreaterThan(25);
        expect(reports.filter(({ failed }) => failed).length).toBeGreaterThan(20);
        // An ADD that went well leaves it on, and DEL does not know whether it was off.
        for (const failAt of [reports.length - 1, reports.length]) {
          await host.run(container, turnOff);
          expect(await host.call(`${BIN_DIR}/ptp`, 'ADD', { ...call, failAt })).toMatchObject({
            exitCode: 1,
          });
          const { stdout } = await host.run(container, ['sysctl', '-n', 'net.ipv6.conf.lo.disable_ipv6']);
          expect(stdout.trim()).toBe('1');
        }
      });
    });

    test('portmap', async () => {
      const portMappings = [
        { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
        { hostPort: 8053, containerPort: 53, protocol: 'udp' },
      ];
      await sweepChained('portmap', { runtimeConfig: { portMappings } });
    });

    testInDepth('portmap with conditions', async () => {
      const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
      const conditionsV4 = ['ip saddr { 10.0.0.0/8, 192.0.2.1 }'];
      await sweepChained('portmap', { runtimeConfig: { portMappings }, conditionsV4 });
    });

    testInDepth('portmap with iptables', async () => {
      const portMappings = [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }];
      await sweepChained('portmap', { runtimeConfig: { portMappings }, backend: 'iptables' });
    });

    test('bandwidth', async () => {
      await sweepChained('bandwidth', {
        ingressRate: 8e6,
        ingressBurst: 4e6,
        egressRate: 8e6,
        egressBurst: 4e6,
      });
    });

    test('tuning', async () => {
      const sysctl = { 'net.core.somaxconn': '321', 'net.ipv4.conf.IFNAME.arp_filter': '1' };
      const mac = '02:00:00:00:00:11';
      await sweepChained('tuning', { sysctl, mac, mtu: 1400, promisc: true, allmulti: true, txQLen: 555 });
    });
  });
});

function bridgeConf(host: TestHost) {
  const ranges = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];
  const ipam = { type: 'host-local', ranges, dataDir: `${host.dir}/leases` };
  return {
    ...BASE,
    type: 'bridge',
    bridge: 'br0',
    isDefaultGateway: true,
    ipMasq: true,
    hairpinMode: true,
    ipam,
  };
}

async function addFirst(host: TestHost, conf: CallOptions['conf']) {
  const container = host.container();
  const { result } = await host.call(`${BIN_DIR}/bridge`, 'ADD', { conf, container, pluginDirs: [BIN_DIR] });
  if (result === undefined) throw new Error('Cannot prepare the host: bridge failed');
  return { container, result };
}

/** A plugin behind bridge, for a container that another one has been before. */
async function sweepChained(type: string, more: object): Promise<void> {
  await withHost(async host => {
    const conf = { ...BASE, type, dataDir: `${host.dir}/${type}`, ...more };
    const earlier = await addFirst(host, bridgeConf(host));
    for (const verb of ['ADD', 'DEL']) {
      await host.call(`${BIN_DIR}/${type}`, verb, {
        conf,
        container: earlier.container,
        prevResult: earlier.result,
      });
    }
    const { container, result } = await addFirst(host, bridgeConf(host));
    const reports = await sweep(host, type, { conf, container, prevResult: result });
    expect(reports.some(({ failed }) => failed)).toBe(true);
  });
}

interface Look {
  readonly host: Dump;
  readonly container: Dump;
  readonly files: readonly string[];
  readonly sysctls: readonly string[];
}

/** The kernel is asked with ip, tc and nft, not by what made the requests. */
function sweep(host: TestHost, type: string, call: CallOptions & { container: Container }) {
  let result = call.prevResult;
  return sweepFaults<Look>({
    async add(failAt) {
      const reply = await host.call(`${BIN_DIR}/${type}`, 'ADD', { ...call, failAt });
      result = reply.result ?? call.prevResult;
      return reply;
    },
    del: () => host.call(`${BIN_DIR}/${type}`, 'DEL', { ...call, prevResult: result }),
    async state() {
      return {
        host: await dump(host, host.namespace),
        container: await dump(host, call.container),
        files: filesOf(host),
        sysctls: await sysctlsOf(host, call.container),
      };
    },
    diff: (before, after) => [
      ...differences('host', before.host, after.host),
      ...differences('container', before.container, after.container),
      ...differences('kept', before, after).filter(line => /kept (files|sysctls)/.test(line)),
    ],
  });
}

async function dump(host: TestHost, place: Namespace): Promise<Dump> {
  const all = await dumpKernelState(async (argv, stdin) => {
    const finished = await host.run(place, argv, stdin === undefined ? {} : { stdin });
    if (finished.exitCode !== 0) throw new Error(`Cannot run "${argv.join(' ')}": ${finished.stderr}`);
    return finished;
  });
  // Link-local addresses come some time after their device.
  const addresses = all.addresses.map(row => ({
    ...row,
    addr_info: row.addr_info.filter(({ scope }: { scope: string }) => scope !== 'link'),
  }));
  const routes = all.routes.filter(({ dst }) => !/^(fe80|ff00)::/.test(dst));
  return { ...all, addresses, routes };
}

/** Locks, and the last address given, are no trace of a container. */
function filesOf({ dir }: TestHost): string[] {
  const files = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  return files.filter(name => !/^run(\/|$)|last_reserved_ip|lock$|\.catena-/.test(name)).sort();
}

async function sysctlsOf(host: TestHost, container: Container): Promise<string[]> {
  const files = ['net/core/somaxconn', 'net/ipv4/conf/eth0/arp_filter', 'net/ipv4/ip_forward'];
  const values = files.map(async file => (await host.run(container, ['cat', `/proc/sys/${file}`])).stdout);
  return (await Promise.all(values)).map((value, i) => `${files[i]} ${value.trim()}`);
}

/** Rows that only one side has, by the kind of row. */
function differences(where: string, before: object, after: object): string[] {
  const rowsOf = (side: object, kind: string) => {
    const rows: unknown = Reflect.get(side, kind);
    return new Set(Array.isArray(rows) ? rows.map(row => JSON.stringify(row)) : []);
  };
  return Object.keys(before).flatMap(kind => {
    const [old, now] = [rowsOf(before, kind), rowsOf(after, kind)];
    const line = (sign: string) => (row: string) => `${where} ${kind} ${sign} ${row}`;
    return [
      ...[...now].filter(row => !old.has(row)).map(line('+')),
      ...[...old].filter(row => !now.has(row)).map(line('-')),
    ];
  });
}
