// What of the kernel's defaults do the main plugins change on the host and in the container, and what do they leave?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { FAULT_VARIABLE } from '../../src/sys/fault.ts';
import {
  type Container,
  directories,
  type Lab,
  type Namespace,
  type Row,
  withHost,
} from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';
import { until } from '../helpers/until.ts';

const DUAL = [[{ subnet: '10.88.0.0/24' }], [{ subnet: 'fd88::/64' }]];

function confOf(lab: Lab, type: string, ranges: unknown, more: Row = {}): Row {
  const ipam = { type: 'host-local', ranges, dataDir: `${lab.tmp}/leases` };
  return { cniVersion: '1.1.0', name: 'podnet', type, ipam, ...more };
}

async function add(lab: Lab, conf: Row, container: Container) {
  return lab.plugin(String(conf.type), {
    command: 'ADD',
    conf,
    container,
    env: { CATENA_LOG_LEVEL: 'info' },
  });
}

async function settingsOf(lab: Lab, ns: Namespace, keys: readonly string[]): Promise<string[]> {
  const { stdout } = await lab.run(ns, ['cat', ...keys.map(key => `/proc/sys/net/${key}`)]);
  return stdout.trim().split('\n');
}

/** Sends three router advertisements for 2001:db8:bad::/64, as a host of the link may. */
const ADVERTISE = `
import socket,struct,sys,time
i=sys.argv[1]
s=socket.socket(socket.AF_INET6,socket.SOCK_RAW,socket.IPPROTO_ICMPV6)
s.setsockopt(socket.SOL_SOCKET,socket.SO_BINDTODEVICE,i.encode())
s.setsockopt(socket.IPPROTO_IPV6,socket.IPV6_MULTICAST_HOPS,255)
ra=struct.pack("!BBHBBHII",134,0,0,64,0,1800,0,0)
ra+=struct.pack("!BBBBIII",3,4,64,0xc0,86400,14400,0)+socket.inet_pton(socket.AF_INET6,"2001:db8:bad::")
for _ in range(3): s.sendto(ra,("ff02::1",0,0,socket.if_nametoindex(i))); time.sleep(.02)
`;

/** An address that a router may advertise from; the kernel drops what is sent before it has looked at a new carrier, up to a second later. */
async function makeRouter(lab: Lab, ns: Namespace, device: string): Promise<void> {
  await lab.ip(ns, 'addr', 'add', 'fe80::bad/64', 'dev', device, 'nodad');
  await until(async () => (await lab.ip(ns, 'link', 'show', device))[0]?.operstate === 'UP');
}

async function advertise(lab: Lab, ns: Namespace, device: string): Promise<boolean> {
  return (await lab.run(ns, ['python3', '-c', ADVERTISE, device])).exitCode === 0;
}

/** Advertises until the host has learned a default route. */
async function teachHost(lab: Lab, router: Namespace): Promise<void> {
  await until(async () => {
    await advertise(lab, router, 'far');
    return (await learned(lab, lab.host)).includes('default');
  });
}

const learned = async (lab: Lab, ns: Namespace) =>
  (await lab.ip(ns, '-6', 'route', 'show', 'proto', 'ra')).map(({ dst }) => dst);

/** An uplink `up0`, and `far` at its other end in a namespace of its own. */
async function uplink(lab: Lab): Promise<Container> {
  const outside = await lab.container();
  await lab.ip(lab.host, 'link', 'add', 'up0', 'type', 'veth', 'peer', 'name', 'far', 'netns', outside.path);
  await lab.sysctl(lab.host, 'net/ipv6/conf/up0/accept_ra', 1);
  await lab.ip(lab.host, 'link', 'set', 'up0', 'up');
  await lab.ip(outside, 'link', 'set', 'far', 'up');
  return outside;
}

describeRoot('the host', () => {
  test.each(['bridge', 'ptp'])('%s: it keeps its IPv6 router when forwarding is turned on', async type => {
    await withHost(async lab => {
      const outside = await uplink(lab);
      await makeRouter(lab, outside, 'far');
      await teachHost(lab, outside);
      await lab.ip(lab.host, 'link', 'add', 'off0', 'type', 'veth', 'peer', 'name', 'off1');
      await lab.sysctl(lab.host, 'net/ipv6/conf/off0/accept_ra', 0);
      const more = type === 'bridge' ? { isDefaultGateway: true } : {};
      const added = await add(lab, confOf(lab, type, DUAL, more), await lab.container());
      expect(added).toMatchObject({ exitCode: 0 });
      expect(added.stderr).toContain('accept_ra of \\"up0\\" to 2');
      expect(await learned(lab, lab.host)).toContain('default');
      const own = added.result.interfaces
        .map(({ name }: Row) => name)
        .filter((name: string) => name !== 'eth0');
      const keys = ['up0', 'off0', ...own].map(name => `ipv6/conf/${name}/accept_ra`);
      expect(await settingsOf(lab, lab.host, keys)).toEqual(['2', '0', ...own.map(() => '0')]);
      // What comes later is heard, too.
      await lab.ip(lab.host, '-6', 'route', 'del', 'default');
      await teachHost(lab, outside);
    });
  });

  test('where forwarding cannot be turned on, everything is as it was', async () => {
    await withHost(async lab => {
      await uplink(lab);
      const conf = confOf(lab, 'bridge', DUAL, { bridge: 'br0', isGateway: true });
      const before = [
        ['ipv4/ip_forward', 0],
        ['ipv6/conf/all/forwarding', 0],
        ['ipv6/conf/up0/accept_ra', 1],
        ['ipv4/conf/all/accept_redirects', 0],
      ] as const;
      const container = await lab.container();
      for (const [key, value] of before) await lab.sysctl(lab.host, `net/${key}`, value);
      const env = { [FAULT_VARIABLE]: 'kernel:set sysctl "net/ipv6/conf/all/forwarding"' };
      const { exitCode, stderr } = await lab.plugin('bridge', { command: 'ADD', conf, container, env });
      expect(stderr).toContain('was made to fail');
      expect(exitCode).not.toBe(0);
      await lab.plugin('bridge', { command: 'DEL', conf, container });
      const keys = before.map(([key]) => key);
      expect(await settingsOf(lab, lab.host, keys)).toEqual(before.map(([, value]) => String(value)));
    });
  });

  test('that turns forwarding off for new devices forwards from those of containers', async () => {
    await withHost(async lab => {
      for (const [key, value] of [
        ['ip_forward', 1],
        ['conf/default/forwarding', 0],
      ] as const)
        await lab.sysctl(lab.host, `net/ipv4/${key}`, value);
      const confs = [
        confOf(lab, 'bridge', [[{ subnet: '10.88.0.0/24' }]], { bridge: 'br0', isDefaultGateway: true }),
        confOf(lab, 'ptp', [[{ subnet: '10.89.0.0/24' }]], {
          name: 'cable',
          ipam: {
            type: 'host-local',
            ranges: [[{ subnet: '10.89.0.0/24' }]],
            routes: [{ dst: '0.0.0.0/0' }],
            dataDir: `${lab.tmp}/leases`,
          },
        }),
      ];
      const containers = [await lab.container(), await lab.container()] as const;
      for (const [i, conf] of confs.entries())
        expect(await add(lab, conf, containers[i] as Container)).toMatchObject({ exitCode: 0 });
      expect(await ping(lab, containers[0], '10.89.0.2')).toBe(true);
    });
  });

  test('that has IPv6 disabled by default connects containers with IPv6', async () => {
    await withHost(async lab => {
      await lab.sysctl(lab.host, 'net/ipv6/conf/default/disable_ipv6', 1);
      for (const conf of [
        confOf(lab, 'bridge', DUAL, { bridge: 'br0', isDefaultGateway: true }),
        confOf(lab, 'ptp', [[{ subnet: '10.89.0.0/24' }], [{ subnet: 'fd89::/64' }]], { name: 'cable' }),
      ]) {
        const container = await lab.container();
        expect(await add(lab, conf, container)).toMatchObject({ exitCode: 0 });
        expect(await ping(lab, container, conf.type === 'bridge' ? 'fd88::1' : 'fd89::1')).toBe(true);
      }
      // A bridge of others is theirs.
      await lab.ip(lab.host, 'link', 'add', 'br9', 'type', 'bridge');
      const conf = confOf(lab, 'bridge', [[{ subnet: 'fd90::/64' }]], { bridge: 'br9', isGateway: true });
      const { error } = await add(lab, conf, await lab.container());
      expect(error).toMatchObject({
        code: 7,
        msg: expect.stringMatching(/"br9".*sysctl -w net\/ipv6\/conf\/br9\/disable_ipv6=0/),
      });
      expect(await settingsOf(lab, lab.host, ['ipv6/conf/br9/disable_ipv6'])).toEqual(['1']);
    });
  });
});

const CLOSED = ['accept_ra', 'autoconf', 'accept_redirects'].map(key => `ipv6/conf/eth0/${key}`);
const NO_REDIRECTS = ['eth0/accept_redirects', 'all/accept_redirects', 'eth0/accept_source_route'].map(
  key => `ipv4/conf/${key}`,
);
const NO_LOCALNET = ['all', 'eth0'].map(name => `ipv4/conf/${name}/route_localnet`);

describeRoot('a container', () => {
  test('of a bridge is not routed by another one', async () => {
    await withHost(async lab => {
      const conf = confOf(lab, 'bridge', [[{ subnet: '10.88.0.0/24' }]], { bridge: 'br0', isGateway: true });
      const [one, two] = [await lab.container(), await lab.container()];
      for (const container of [one, two])
        expect(await add(lab, conf, container)).toMatchObject({ exitCode: 0 });
      await makeRouter(lab, one, 'eth0');
      expect(await advertise(lab, one, 'eth0')).toBe(true);
      expect(await ping(lab, two, '10.88.0.1')).toBe(true);
      expect(await learned(lab, two)).toEqual([]);
      expect(await settingsOf(lab, two, [...CLOSED, ...NO_REDIRECTS])).toEqual(Array(6).fill('0'));
    });
  });

  test('keeps what listens on its loopback addresses from neighbours, unless it runs and has opened them', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const open = () => lab.sysctl(container, 'net/ipv4/conf/all/route_localnet', 1);
      // As inherited on a node with kube-proxy.
      await open();
      const conf = confOf(lab, 'bridge', [[{ subnet: '10.88.0.0/24' }]], { bridge: 'br0', isGateway: true });
      expect(await add(lab, conf, container)).toMatchObject({ exitCode: 0 });
      expect(await settingsOf(lab, container, NO_LOCALNET)).toEqual(['0', '0']);
      await open();
      const more = confOf(lab, 'ptp', [[{ subnet: '10.89.0.0/24' }]], { name: 'cable' });
      const second = { command: 'ADD', conf: more, container, ifname: 'net1' };
      expect(await lab.plugin('ptp', second)).toMatchObject({ exitCode: 0 });
      expect(await settingsOf(lab, container, NO_LOCALNET)).toEqual(['1', '0']);
    });
  });

  test.each(['macvlan', 'ptp', 'host-device', 'tap'])('of %s listens to no router either', async type => {
    await withHost(async lab => {
      const outside = await uplink(lab);
      const options: Record<string, Row> = { macvlan: { master: 'up0' }, 'host-device': { device: 'up0' } };
      const more = options[type] ?? {};
      const container = await lab.container();
      const conf = confOf(lab, type, [[{ subnet: '10.88.0.0/24' }]], more);
      expect(await add(lab, conf, container)).toMatchObject({ exitCode: 0 });
      expect(await settingsOf(lab, container, [...CLOSED, ...NO_REDIRECTS])).toEqual(Array(6).fill('0'));
      if (type === 'macvlan') {
        await makeRouter(lab, outside, 'far');
        await teachHost(lab, outside);
        expect(await learned(lab, container)).toEqual([]);
      }
    });
  });

  test('without addresses of a list is as the kernel made it', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = { ...confOf(lab, 'bridge', [], { bridge: 'br0' }), ipam: undefined };
      expect(await add(lab, conf, container)).toMatchObject({ exitCode: 0 });
      expect(await settingsOf(lab, container, CLOSED)).toEqual(['1', '1', '1']);
    });
  });
});

describeRoot('the MTU of a bridge', () => {
  test('and of its ports that lead elsewhere bounds "auto"; a larger number is warned of', async () => {
    await withHost(async lab => {
      await lab.ip(lab.host, 'link', 'add', 'br0', 'mtu', '1450', 'type', 'bridge');
      const conf = (mtu: unknown) =>
        confOf(lab, 'bridge', [[{ subnet: '10.88.0.0/24' }]], { bridge: 'br0', mtu });
      const mtuOf = async (mtu: unknown) => {
        const container = await lab.container();
        const { exitCode, stderr } = await add(lab, conf(mtu), container);
        expect(exitCode).toBe(0);
        return {
          mtu: (await lab.ip(container, 'link', 'show', 'eth0'))[0]?.mtu,
          isWarned: stderr.includes('an MTU of'),
        };
      };
      expect(await mtuOf('auto')).toEqual({ mtu: 1450, isWarned: false });
      expect(await mtuOf(9000)).toEqual({ mtu: 9000, isWarned: true });
      // As a tunnel's.
      await lab.ip(lab.host, 'link', 'add', 'x0', 'mtu', '1300', 'type', 'veth', 'peer', 'name', 'x1');
      await lab.ip(lab.host, 'link', 'set', 'x0', 'master', 'br0');
      expect(await mtuOf('auto')).toEqual({ mtu: 1300, isWarned: false });
    });
  });
});

describeRoot('a default route whose device only its next hop object names', () => {
  test.each([
    ['bridge', { bridge: 'br0', mtu: 'auto' }],
    ['macvlan', {}],
  ])('is followed by %s', async (type, more) => {
    await withHost(async lab => {
      await uplink(lab);
      await lab.sysctl(lab.host, 'net/ipv4/nexthop_compat_mode', 0);
      await lab.batch(
        lab.host,
        'link set up0 mtu 1400',
        'addr add 10.77.0.2/24 dev up0',
        'nexthop add id 10 via 10.77.0.1 dev up0',
        'route add default nhid 10',
      );
      const container = await lab.container();
      const conf = confOf(lab, type, [[{ subnet: '10.88.0.0/24' }]], more);
      expect(await add(lab, conf, container)).toMatchObject({ exitCode: 0 });
      expect((await lab.ip(container, 'link', 'show', 'eth0'))[0]?.mtu).toBe(1400);
    });
  });
});

describeRoot('an MTU below what IPv6 needs', () => {
  test('is named by bridge for a bridge of others', async () => {
    await withHost(async lab => {
      await lab.ip(lab.host, 'link', 'add', 'br0', 'up', 'type', 'bridge');
      await lab.ip(lab.host, 'link', 'set', 'br0', 'mtu', '1000');
      const conf = confOf(lab, 'bridge', DUAL, { bridge: 'br0', isGateway: true });
      expect((await add(lab, conf, await lab.container())).error).toMatchObject({
        code: 7,
        msg: expect.stringContaining('Cannot give "br0" an IPv6 address: its MTU is less than the 1280'),
      });
    });
  });

  test.each(['bridge', 'ptp', 'tap'])(
    'is named by %s, and not taken for a kernel without IPv6',
    async type => {
      await withHost(async lab => {
        const conf = confOf(lab, type, DUAL, {
          mtu: 1279,
          ...(type === 'bridge' ? { isGateway: true } : {}),
        });
        const { error } = await add(lab, conf, await lab.container());
        expect(error).toMatchObject({
          code: 7,
          msg: expect.stringContaining('its MTU is less than the 1280'),
        });
      });
    },
  );
});

describeRoot('CHECK', () => {
  test.each(['bridge', 'ptp', 'tap'])('of %s knows the namespace by any path', async type => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = confOf(lab, type, [[{ subnet: '10.88.0.0/24' }]]);
      const { result } = await add(lab, conf, container);
      const path = `${lab.tmp}/other`;
      fs.symlinkSync(container.path, path);
      const check = { command: 'CHECK', conf, container: { ...container, path }, prevResult: result };
      expect(await lab.plugin(type, check)).toMatchObject({ exitCode: 0, stdout: '' });
      const others = { ...check, container: { ...container, path: (await lab.container()).path } };
      expect((await lab.plugin(type, others)).exitCode).not.toBe(0);
    });
  });
});

describeRoot('executable memory that is refused', () => {
  test('is what the error names, not the library', async () => {
    await withHost(async lab => {
      const request = JSON.stringify({ cniVersion: '1.1.0', name: 'podnet', type: 'loopback' });
      const container = await lab.container();
      // linux/prctl.h: PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, as MemoryDenyWriteExecute= of systemd
      const script = `import ctypes,os,sys
if ctypes.CDLL(None).prctl(65,1,0,0,0) != 0: sys.exit(77)
os.environ.update(CNI_CONTAINERID="a",CNI_NETNS=sys.argv[2],CNI_IFNAME="lo",CNI_PATH="/",CATENA_DAEMON="0")
if sys.argv[2] != "doctor": os.environ["CNI_COMMAND"] = "ADD"
os.execv(sys.argv[1],sys.argv[1:2])`;
      const argv = ['python3', '-c', script, `${BIN_DIR}/loopback`, container.path];
      const { exitCode, stdout } = await lab.run(lab.host, argv, { stdin: request });
      if (exitCode === 77) return;
      expect(stdout).toContain('the library is there; executable memory is refused');
      const dirs = ['--conf-dir', lab.tmp, '--bin-dir', BIN_DIR, '--json'];
      const doctor = ['python3', '-c', script.replace('sys.argv[1:2]', 'sys.argv[1:]'), `${BIN_DIR}/catena`];
      const told = await lab.run(lab.host, [...doctor, 'doctor', ...dirs], { env: directories(lab.tmp) });
      expect(told.exitCode).toBe(1);
      expect(JSON.parse(told.stdout).findings).toMatchObject([
        {
          severity: 'error',
          found: expect.stringContaining('Remove MemoryDenyWriteExecute= from the service'),
        },
      ]);
    });
  });
});
