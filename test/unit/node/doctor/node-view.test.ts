// Which containers does the node route packets to, and what do the checks find in its files?

import { afterEach, beforeEach, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { KNOWN_TYPES, loadAbout } from '../../../../plugins/registry.ts';
import { writeEntry } from '../../../../src/attachments/entries.ts';
import { loadAbouts } from '../../../../src/cni/plugin-about.ts';
import { parseCidr, parseIp } from '../../../../src/net/ip.ts';
import { RT_TABLE_MAIN } from '../../../../src/netlink/rtnl/route.ts';
import { type HostRoute, HostRoutes } from '../../../../src/node/devices.ts';
import { unlisted } from '../../../../src/node/doctor/checks/configuration.ts';
import type { Finding, NodeView, RoutedPod } from '../../../../src/node/doctor/finding.ts';
import { CHECKS, findProblems, routedPods } from '../../../../src/node/doctor/node-view.ts';
import { factsIn } from '../../../../src/node/facts.ts';
import type { NodeAttachment } from '../../../../src/node/model.ts';
import { describeNeeding } from '../../../helpers/skip.ts';
import { ROOT } from '../../../helpers/source-tree.ts';

test('those behind a pair and a bridge, not those on the link of a device of the node', () => {
  const on = (containerId: string, kind: string, hostDevice: object) =>
    ({
      ...{ network: 'lan', containerId, ifname: 'eth0', state: 'attached', addresses: ['10.1.0.2/24'] },
      ...{ ports: [], device: { kind }, hostDevice },
    }) as unknown as NodeAttachment;
  const attachments = [
    on('bridged', 'veth', { name: 'veth1', master: 'br0' }),
    on('routed', 'veth', { name: 'br0' }),
    on('beside', 'macvlan', { name: 'br0' }),
  ];
  const routes = toRoutes([{ destination: '10.1.0.0/24', device: 'br0' }]);
  const pods = routedPods({ attachments }, { routes }) ?? [];
  expect(pods.map(({ containerId }) => containerId)).toEqual(['bridged', 'routed']);
});

type Row = Omit<HostRoute, 'dst'> & { readonly destination: string };

function toRoutes(rows: readonly Row[]): HostRoutes {
  return new HostRoutes(rows.map(({ destination, ...rest }) => ({ dst: parseCidr(destination), ...rest })));
}

test('a way is found without another look at all routes', () => {
  let looks = 0;
  const all = Array.from({ length: 1000 }, (_, i) => ({
    device: `dev${i}`,
    get dst() {
      looks++;
      return parseCidr(i === 0 ? '10.0.0.0/8' : `10.${i >> 8}.${i & 0xff}.0/24`);
    },
  }));
  const routes = new HostRoutes(all);
  for (let i = 1; i < 1000; i++)
    expect(routes.find(parseIp(`10.${i >> 8}.${i & 0xff}.9`))?.device).toBe(`dev${i}`);
  expect(routes.find(parseIp('10.200.0.1'))?.device).toBe('dev0');
  expect([parseIp('11.0.0.1'), parseIp('fd00::1')].map(ip => routes.find(ip))).toEqual([
    undefined,
    undefined,
  ]);
  expect(looks).toBeLessThanOrEqual(3 * all.length);
});

const findAbout = await loadAbouts(loadAbout, KNOWN_TYPES);
let dir: string;
/** A plugin that nothing calls. */
function install(type: string, text = '#!/bin/sh\n', mode = 0o755): void {
  fs.writeFileSync(`${dir}/bin/${type}`, text, { mode });
}

beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-doctor-'));
  for (const name of ['conf', 'bin', 'cni', 'state', 'run']) fs.mkdirSync(`${dir}/${name}`);
  for (const type of ['bridge', 'host-local']) install(type);
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

type More = Partial<Omit<NodeView, 'routes'>> & { readonly routes?: readonly Row[] };

const UPLINK = { destination: '0.0.0.0/0', device: 'eth0' };

/** A node of files that the test names, with an uplink. */
function node(
  files: Readonly<Record<string, string>> = {},
  { routes = [UPLINK], ...more }: More = {},
): NodeView {
  const places = {
    confDir: `${dir}/conf`,
    pluginDirs: [`${dir}/bin`],
    cacheDir: `${dir}/cni`,
    stateDir: `${dir}/state`,
    runDir: `${dir}/run`,
  };
  return {
    ...places,
    facts: factsIn(places.confDir, places),
    findAbout,
    ownNames: KNOWN_TYPES,
    read: file => files[file],
    list: file =>
      Object.keys(files).flatMap(name => (path.dirname(name) === file ? path.basename(name) : [])),
    findStorageProblem: () => undefined,
    routes: toRoutes(routes),
    devices: [{ name: 'eth0', kind: '', mtu: 1500 }],
    ...more,
  };
}

function writeList(name: string, more: object = {}, file = `${name}.conflist`): void {
  const ipam = { type: 'host-local', subnet: '10.1.0.0/29', dataDir: `${dir}/leases` };
  const list = { cniVersion: '1.1.0', name, plugins: [{ type: 'bridge', ipam, ...more }] };
  fs.writeFileSync(`${dir}/conf/${file}`, JSON.stringify(list));
}

const problemsOf = async (view: NodeView): Promise<Finding[]> =>
  (await findProblems(view)).filter(({ severity }) => severity === 'error' || severity === 'warning');
const idsOf = async (view: NodeView): Promise<string[]> => (await problemsOf(view)).map(({ id }) => id);

test('a test damages a node for each check but these, and runs the mend', () => {
  const files = ['test/helpers/damage-scenes.ts', 'test/e2e/doctor-table.test.ts'];
  const damages = files.map(file => fs.readFileSync(path.join(ROOT, file), 'utf8')).join('\n');
  expect(Object.keys(CHECKS).filter(id => !damages.includes(`'${id}'`))).toEqual([
    'configuration.shadowed',
    'configuration.too-new',
    'state.unsettled',
    'state.garbage',
    'state.locks',
    'network.device',
    'network.nodes',
    'kernel.bridge-nf',
    'kernel.packet-filters',
  ]);
});

/** What root runs must belong to root, and the files of these tests belong to the user who runs them. */
const NEEDS_ROOT = process.getuid?.() === 0 ? undefined : 'needs root to make files of root';

describeNeeding(
  'findProblems()',
  () => {
    test('finds no problem on a healthy node', async () => {
      writeList('podnet');
      expect(await problemsOf(node())).toEqual([]);
      expect(new Set((await findProblems(node())).map(({ id }) => id))).toEqual(new Set(Object.keys(CHECKS)));
    });

    test('reports directories that cannot be written', async () => {
      writeList('podnet');
      const full = node(
        {},
        { findStorageProblem: place => (place.includes('leases') ? 'it is full' : undefined) },
      );
      expect(await problemsOf(full)).toMatchObject([
        {
          id: 'state.storage',
          severity: 'error',
          found: `Cannot write to "${dir}/leases/podnet": it is full`,
        },
      ]);
    });

    test('reports a missing network, and a broken one', async () => {
      expect(await problemsOf(node())).toMatchObject([
        {
          id: 'configuration.shadowed',
          mend: `catena init podnet --kind bridge --subnet auto && catena install podnet.conflist --conf-dir ${dir}/conf`,
        },
      ]);
      fs.writeFileSync(`${dir}/conf/10-bad.conflist`, '{');
      writeList('podnet');
      const [worst] = await problemsOf(node());
      expect(worst).toMatchObject({ id: 'configuration.broken', severity: 'error' });
      expect(worst?.found).toContain('10-bad.conflist');
      expect(worst?.mend).toContain('catena validate');
    });

    test.each([
      ['eth0', ['configuration.unlisted']],
      ['lo', []],
    ])(
      'reports a container that a network without a list attached, but not its loopback: %s',
      async (ifname, found) => {
        writeList('podnet');
        const request = { cniVersion: '1.1.0', name: 'lost', plugins: [{ type: 'loopback' }] };
        const entry = {
          ...{ kind: 'cniCacheV1', containerId: 'c1', ifName: ifname, networkName: 'lost', result: {} },
          ...{ config: Buffer.from(JSON.stringify(request)).toString('base64'), netns: '/proc/self/ns/net' },
        };
        fs.mkdirSync(`${dir}/cni/results`);
        fs.writeFileSync(`${dir}/cni/results/lost-c1-${ifname}`, JSON.stringify(entry));
        const all = (await findProblems(node())).filter(({ id }) => id === 'configuration.unlisted');
        expect(all.filter(({ severity }) => severity !== 'ok').map(({ id }) => id)).toEqual(found);
      },
    );

    test('looks for no list of a network that a delegate runner attached a container to', () => {
      writeList('podnet');
      const known = { network: 'storage', containerId: 'c1', ifname: 'net1', stateDir: '/state' };
      const seenFrom = (through: string | undefined) => {
        const one = { ...known, through, isGone: false };
        const facts = { ...node().facts, attachments: () => ({ attachments: [one] }) };
        return unlisted({ ...node(), facts } as unknown as NodeView);
      };
      expect(seenFrom('podnet')).toBe('every network with attachments has a list');
      expect(seenFrom(undefined)).toMatchObject([{ severity: 'warning' }]);
    });

    test('reports missing plugins', async () => {
      writeList('podnet', { type: 'macvtap' });
      expect(await problemsOf(node())).toMatchObject([{ id: 'executables', severity: 'error' }]);
    });

    test.each([
      ['is not executable', '#!/bin/sh\n', 0o644, 'chmod +x'],
      ['is no program', 'garbage', 0o755, 'catena install --force --bin-dir'],
      ['is no program', '', 0o755, 'catena install --force --bin-dir'],
    ])('reports a plugin that %s: %j', async (problem, text, mode, mend) => {
      writeList('podnet');
      fs.rmSync(`${dir}/bin/bridge`);
      install('catena', '#!/bin/sh\n# longer than the plugins');
      install('host-local', '#!/bin/sh\n# longer than the plugins');
      install('bridge', text, mode);
      const found = await findProblems(node());
      expect(found.filter(({ id, severity }) => id === 'executables' || severity === 'error')).toMatchObject([
        {
          id: 'executables',
          severity: 'error',
          found: expect.stringContaining(problem),
          mend: expect.stringContaining(mend),
        },
      ]);
    });

    test('reports a range whose addresses are all leased, except the gateway', async () => {
      writeList('podnet');
      fs.mkdirSync(`${dir}/leases/podnet`, { recursive: true });
      const lease = (i: number) => fs.writeFileSync(`${dir}/leases/podnet/10.1.0.${i}`, `c${i}\r\neth0`);
      // 10.1.0.1 is the gateway, which is never assigned: five addresses are all there are.
      for (let i = 2; i <= 5; i++) lease(i);
      expect(await problemsOf(node())).toEqual([]);
      lease(6);
      expect(await problemsOf(node())).toMatchObject([
        {
          id: 'ipam.pools',
          severity: 'error',
          found: expect.stringContaining('is full: the next ADD fails; 5 of 5'),
        },
      ]);
    });

    test('counts the ranges of a set together, and tells who holds the addresses', async () => {
      const ranges = [[{ subnet: '10.1.0.0/29' }, { subnet: '10.2.0.0/29', exclude: ['10.2.0.4-10.2.0.6'] }]];
      writeList('podnet', { ipam: { type: 'host-local', ranges, dataDir: `${dir}/leases` } });
      fs.mkdirSync(`${dir}/leases/podnet`, { recursive: true });
      const lease = (ip: string, id: string) =>
        fs.writeFileSync(`${dir}/leases/podnet/${ip}`, `${id}\r\neth0`);
      for (let i = 2; i <= 6; i++) lease(`10.1.0.${i}`, i < 5 ? 'greedy' : `c${i}`);
      expect(await problemsOf(node())).toEqual([]);
      lease('10.2.0.2', 'c9');
      lease('10.2.0.3', 'c10');
      fs.mkdirSync(`${dir}/cni/results`);
      const lost = {
        kind: 'cniCacheV1',
        containerId: 'c9',
        ifName: 'eth0',
        networkName: 'podnet',
        netns: '/nowhere',
      };
      fs.writeFileSync(`${dir}/cni/results/podnet-c9-eth0`, JSON.stringify(lost));
      const found = (await problemsOf(node())).find(({ id }) => id === 'ipam.pools');
      expect(found).toMatchObject({
        severity: 'error',
        found:
          'pool 10.1.0.0/29, 10.2.0.0/29 of network "podnet" is full: the next ADD fails; 7 of 7 addresses are in use, 1 of them by containers that are gone, container "greedy" holds the most, 3',
        mend: "catena del podnet '' --container-id c9 --ifname eth0  # if the containers are gone",
      });
    });

    test('reports unreadable records', async () => {
      writeList('podnet');
      fs.mkdirSync(`${dir}/cni/results`);
      fs.writeFileSync(`${dir}/cni/results/podnet-c1-eth0`, '{');
      expect(await idsOf(node())).toEqual(['state.damaged']);
    });

    test('reports damaged records of the delegate runner', async () => {
      writeList('podnet');
      const records = `${dir}/state/delegates/unsettled/podnet`;
      fs.mkdirSync(records, { recursive: true });
      fs.writeFileSync(`${records}/c1:net1`, 'nonsense\n');
      const [damaged, ...others] = await problemsOf(node());
      expect(damaged).toMatchObject({ id: 'state.damaged', found: expect.stringContaining(records) });
      expect(others).toEqual([]);
    });

    test('reports files that turn forwarding off at the next run of "sysctl --system"', async () => {
      writeList('podnet');
      const files = {
        '/etc/sysctl.d/50-hardening.conf':
          '# hardening\nnet.ipv4.ip_forward = 0\n-net/ipv6/conf/all/forwarding=0\n',
        '/usr/lib/sysctl.d/50-hardening.conf': 'net.ipv4.ip_forward = 1\n',
        '/etc/sysctl.d/60-router.conf':
          '; net.ipv6.conf.all.forwarding = 0\nnet.ipv6.conf.all.forwarding = 1\n',
      };
      expect(await problemsOf(node(files))).toMatchObject([
        {
          id: 'kernel.sysctl-files',
          found: expect.stringContaining('"/etc/sysctl.d/50-hardening.conf" sets "net.ipv4.ip_forward"'),
        },
      ]);
      expect(await problemsOf(node({ ...files, '/etc/sysctl.conf': 'net.ipv4.ip_forward=1' }))).toEqual([]);
    });

    test('reports services of runtimes that refuse executable memory to plugins', async () => {
      writeList('podnet');
      const unit = (value: string) => `[Service]\nExecStart=/usr/bin/x\nMemoryDenyWriteExecute=${value}\n`;
      const files = {
        '/usr/lib/systemd/system/containerd.service': unit('no'),
        '/etc/systemd/system/containerd.service.d/50-hardening.conf': unit('yes'),
        '/etc/systemd/system/crio.service': unit('true'),
        '/usr/lib/systemd/system/crio.service.d/60-no.conf': unit('false'),
        '/etc/systemd/system/other.service': unit('yes'),
      };
      expect(await problemsOf(node(files))).toMatchObject([
        {
          id: 'kernel.executable-memory',
          severity: 'error',
          found: expect.stringMatching(
            /50-hardening.conf" sets MemoryDenyWriteExecute: plugins that containerd/,
          ),
        },
      ]);
    });

    test('reports disabled forwarding as an error if containers need it', async () => {
      writeList('podnet');
      const files = {
        '/proc/sys/net/ipv4/ip_forward': '0\n',
        '/proc/sys/net/ipv6/conf/all/forwarding': '0\n',
      };
      const pod = (family: 4 | 6): RoutedPod => ({
        network: 'podnet',
        containerId: 'c1',
        ifname: 'eth0',
        family,
        address: family === 4 ? '10.1.0.2' : 'fd00::2',
        device: 'br0',
        ports: [],
      });
      const severities = async (pods?: RoutedPod[]) =>
        (await findProblems(node(files, pods ? { pods } : {})))
          .filter(({ id }) => id === 'kernel.forwarding')
          .map(({ severity, mend }) => [severity, mend]);
      const [v4, v6] = ['sysctl -w net.ipv4.ip_forward=1', 'sysctl -w net.ipv6.conf.all.forwarding=1'];
      expect(await severities([pod(4)])).toEqual([
        ['error', v4],
        ['info', v6],
      ]);
      expect((await severities([pod(6)]))[0]).toEqual(['error', v6]);
      expect(await severities([])).toEqual([
        ['info', v4],
        ['info', v6],
      ]);
      expect(await severities()).toEqual([
        ['unexamined', v4],
        ['unexamined', v6],
      ]);
      const device = { '/proc/sys/net/ipv4/conf/br0/forwarding': '0\n' };
      expect(await problemsOf(node(device, { pods: [pod(4)] }))).toMatchObject([
        { severity: 'error', mend: 'sysctl -w net/ipv4/conf/br0/forwarding=1' },
      ]);
    });

    test('reports routes that drop packets to containers, and addresses of theirs that the node has as well', async () => {
      const place = { network: 'podnet', containerId: 'c1', ifname: 'eth0', device: 'br0', ports: [] };
      const pods: RoutedPod[] = [
        { ...place, family: 4, address: '10.1.0.2' },
        { ...place, family: 6, address: 'fd00::2' },
      ];
      const routes = ['0.0.0.0/0', '10.1.0.0/29', 'fd00::/64'].map(destination => ({
        destination,
        device: destination === '0.0.0.0/0' ? 'eth0' : 'br0',
      }));
      const refusal = (kind: 'unreachable' | 'blackhole', text: string, table = RT_TABLE_MAIN) => {
        return { kind, dst: parseCidr(text), table, protocol: 3 };
      };
      const view = (...refusals: ReturnType<typeof refusal>[]) =>
        node({ '/proc/sys/net/ipv4/ip_forward': '1' }, { pods, routes, refusals: () => refusals });
      const mendsOf = async (one: NodeView) =>
        (await problemsOf(one)).flatMap(({ id, mend }) => (id === 'kernel.routing-rules' ? mend : []));
      // The route of the bridge is narrower or as narrow, another table is not asked, and another container's address is not concerned.
      const others = ['10.0.0.0/8', '10.1.0.0/29', '10.1.0.3/32', '::/0'].map(text =>
        refusal('blackhole', text),
      );
      expect(await mendsOf(view(...others, refusal('blackhole', '10.1.0.2/32', 7)))).toEqual([]);
      const banned = view(refusal('unreachable', '10.1.0.2/32'), refusal('blackhole', 'fd00::2/127'));
      expect(await mendsOf(banned)).toEqual([
        'ip route del unreachable 10.1.0.2/32',
        'ip -6 route del blackhole fd00::2/127',
      ]);
      const devices = [{ name: 'lo', kind: '', mtu: 65_536, addresses: ['127.0.0.1/8', '10.1.0.2/32'] }];
      expect(await mendsOf({ ...view(), devices })).toEqual(['ip addr del 10.1.0.2/32 dev lo']);
    });

    test('reports a missing uplink, and accepts the MTU of the one that exists', async () => {
      writeList('podnet', { bridge: 'br0', uplinkInterface: 'up0', mtu: 'auto' });
      expect(await problemsOf(node())).toMatchObject([
        {
          id: 'network.device',
          severity: 'error',
          found: 'network "podnet" needs device "up0", which does not exist',
        },
      ]);
      const devices = [
        { name: 'eth0', kind: '', mtu: 1400 },
        { name: 'up0', kind: '', mtu: 9000 },
      ];
      expect(await problemsOf(node({}, { devices }))).toEqual([]);
    });

    test('reports subnets that overlap with routes of the node, and an MTU that is too large for it', async () => {
      writeList('podnet', { bridge: 'br0' });
      const routes = [
        { destination: '0.0.0.0/0', device: 'eth0' },
        { destination: '10.1.0.0/16', device: 'vpn0' },
        { destination: '10.1.0.0/29', device: 'br0' },
      ];
      const devices = [{ name: 'eth0', kind: '', mtu: 1400 }];
      const found = await problemsOf(node({}, { routes, devices }));
      expect(found.map(({ id }) => id)).toEqual(['network.subnet-overlap', 'network.mtu']);
      expect(found[0]?.found).toContain('vpn0');
    });

    test("does not mind routes to containers on the host's ends of their pairs, but those elsewhere", async () => {
      install('ptp');
      writeList('podnet', { type: 'ptp' });
      const interfaces = [{ name: 'veth1' }, { name: 'eth0', sandbox: '/proc/self/ns/net' }];
      const result = { cniVersion: '1.1.0', interfaces, ips: [{ address: '10.1.0.2/29' }] };
      const id = { network: 'podnet', containerId: 'c1', ifname: 'eth0', netns: '/proc/self/ns/net' };
      writeEntry(`${dir}/cni`, { ...id, args: [], capabilityArgs: {}, source: '', result });
      const routes = (...devices: string[]) => ({
        routes: [
          { destination: '0.0.0.0/0', device: 'eth0' },
          ...devices.flatMap(device =>
            ['10.1.0.2/32', '10.1.0.1/32'].map(destination => ({ destination, device })),
          ),
        ],
      });
      const devices = [
        { name: 'lo', kind: '', mtu: 65_536 },
        { name: 'eth0', kind: '', mtu: 1500 },
      ];
      expect(await problemsOf(node({}, { ...routes('veth1'), devices }))).toEqual([]);
      // A container with a narrower route of its own is not led astray.
      const wider = [...routes('veth1').routes, { destination: '10.1.0.0/30', device: 'eth0' }];
      expect(await problemsOf(node({}, { routes: wider, devices }))).toMatchObject([
        { id: 'network.subnet-overlap', severity: 'warning' },
      ]);
      expect(await problemsOf(node({}, routes('veth1', 'eth0')))).toMatchObject([
        { severity: 'error', mend: 'ip route del 10.1.0.2/32 dev eth0' },
        { severity: 'warning' },
      ]);
      // Without it the node would not reach its own neighbours.
      const lan = { destination: '10.1.0.2/31', device: 'eth0', isOfAddress: true } as const;
      const [uplink = lan] = routes().routes;
      expect(await problemsOf(node({}, { routes: [uplink, lan] }))).toMatchObject([
        { severity: 'error', mend: expect.stringMatching(/^use another subnet for network "podnet", and/) },
      ]);
      const other = { ...id, network: 'other', containerId: 'c2' };
      const theirs = { ...result, interfaces: [{ name: 'veth2' }] };
      writeEntry(`${dir}/cni`, { ...other, args: [], capabilityArgs: {}, source: '', result: theirs });
      const mend = expect.stringContaining('use another subnet for network "podnet" or "other"');
      expect((await problemsOf(node({}, routes('veth2'))))[0]).toMatchObject({ severity: 'error', mend });
      // Another subnet for the network would not help two of its own containers.
      const same = { ...other, network: 'podnet' };
      writeEntry(`${dir}/cni`, { ...same, args: [], capabilityArgs: {}, source: '', result: theirs });
      fs.rmSync(`${dir}/cni/results/other-c2-eth0`);
      const ranges = [
        [{ subnet: '10.1.0.0/29', rangeEnd: '10.1.0.3' }],
        [{ subnet: '10.1.0.0/29', rangeStart: '10.1.0.4' }],
      ];
      writeList('podnet', { type: 'ptp', ipam: { type: 'host-local', ranges } });
      const found = await problemsOf(node({}, routes('veth2')));
      expect(found.filter(({ severity }) => severity === 'error').map(one => one.mend)).toEqual([
        'start container "c1" or "c2" again: both have the address',
      ]);
    });

    test('does not mind the route to the LAN whose addresses a macvlan gives', async () => {
      install('macvlan');
      writeList('lan', { type: 'macvlan', master: 'eth0' });
      const routes = [
        { destination: '0.0.0.0/0', device: 'eth0' },
        { destination: '10.1.0.0/16', device: 'eth0' },
      ];
      expect(await problemsOf(node({}, { routes }))).toEqual([]);
    });

    test('reports routes to other nodes that are missing, and what could not be planned', async () => {
      writeList('podnet', { bridge: 'br0' });
      const view = { nodes: 2, routes: 4, problems: [], differences: [] };
      expect(await problemsOf(node({}, { between: async () => view }))).toEqual([]);
      const differences = [
        'missing: route to 10.244.2.0/24 via 192.0.2.2',
        'device "catena-vxlan" is missing',
      ];
      const problems = ['no way to 10.244.3.0/24 of node "c": it has no address'];
      expect(
        await problemsOf(node({}, { between: async () => ({ ...view, differences, problems }) })),
      ).toMatchObject([
        {
          id: 'network.nodes',
          severity: 'error',
          found:
            'pods of other nodes are not reached as planned: missing: route to 10.244.2.0/24 via 192.0.2.2, and 1 more',
        },
        { id: 'network.nodes', severity: 'warning', found: problems[0] },
      ]);
    });

    test('reports an MTU that is too large for a port of the bridge, or that tuning gives one end alone', async () => {
      writeList('podnet', { bridge: 'br0' });
      const bridge = { name: 'br0', kind: 'bridge', mtu: 1450 };
      const uplink = { name: 'eth0', kind: '', mtu: 9000 };
      const port = (name: string, mtu: number) => ({ name, kind: 'veth', mtu, master: 'br0' });
      const among = (...ports: ReturnType<typeof port>[]) =>
        problemsOf(node({}, { devices: [uplink, { ...bridge, mtu: 9000 }, ...ports] }));
      expect(
        await among(port('vx0', 1450), port('veth1', 1450), { ...port('other', 1280), master: 'br1' }),
      ).toEqual([]);
      expect(await among(port('veth1', 1500), port('vx0', 1450))).toMatchObject([
        {
          id: 'network.mtu',
          found: expect.stringContaining('the MTU of "vx0" is 1450, that of "veth1" 1500'),
        },
      ]);
      expect(
        await problemsOf(node({}, { devices: [uplink, { ...bridge, mtu: 600 }, port('veth1', 1500)] })),
      ).toMatchObject([{ id: 'network.mtu', mend: 'ip link set dev br0 mtu 1500' }]);
      const ipam = { type: 'host-local', subnet: '10.1.0.0/29', dataDir: `${dir}/leases` };
      const plugins = [
        { type: 'bridge', bridge: 'br0', ipam },
        { type: 'tuning', mtu: 4000 },
      ];
      fs.writeFileSync(
        `${dir}/conf/podnet.conflist`,
        JSON.stringify({ cniVersion: '1.1.0', name: 'podnet', plugins }),
      );
      install('tuning');
      expect(await problemsOf(node({}, { devices: [uplink, bridge] }))).toMatchObject([
        {
          found:
            'network "podnet" sends packets of up to 4000 bytes, but the MTU of its bridge "br0" is 1450',
          mend: 'set "mtu": 1450 in the "tuning" entry',
        },
      ]);
    });

    test('reports an MTU that is too large for the tunnel to other nodes', async () => {
      writeList('podnet', { bridge: 'br0' });
      const routes = [{ destination: '0.0.0.0/0', device: 'eth0' }];
      const devices = [
        { name: 'eth0', kind: '', mtu: 1500 },
        { name: 'catena-vxlan', kind: 'vxlan', mtu: 1450 },
      ];
      expect(await problemsOf(node({}, { routes, devices }))).toMatchObject([
        {
          id: 'network.mtu',
          found:
            'network "podnet" sends packets of up to 1500 bytes, but the MTU of the tunnel to other nodes "catena-vxlan" is 1450',
          mend: 'set "mtu": 1450 in the "bridge" entry',
        },
      ]);
    });

    test.each([
      [
        'families of bridged packets that are filtered differently',
        'kernel.bridge-nf',
        {
          '/proc/sys/net/bridge/bridge-nf-call-iptables': '1\n',
          '/proc/sys/net/bridge/bridge-nf-call-ip6tables': '0\n',
        },
      ],
      ['a second packet filter', 'kernel.packet-filters', { '/proc/net/ip_tables_names': 'filter\nnat\n' }],
      ['ufw', 'kernel.firewall-managers', { '/etc/ufw/ufw.conf': 'ENABLED=yes\n' }],
    ])('reports %s', async (_what, id, files) => {
      writeList('podnet');
      expect(await idsOf(node(files as unknown as Record<string, string>))).toEqual([id]);
    });

    test.each([
      ['iptables', 'ip6tables'],
      ['ip6tables', 'iptables'],
    ])('where %s alone gets bridged packets, %s is to get them as well', async (passes, lacks) => {
      writeList('podnet');
      const path = '/proc/sys/net/bridge/bridge-nf-call';
      const found = await problemsOf(node({ [`${path}-${passes}`]: '1\n', [`${path}-${lacks}`]: '0\n' }));
      expect(found).toMatchObject([{ mend: `sysctl -w net.bridge.bridge-nf-call-${lacks}=1` }]);
    });

    test('reports a check that cannot be made, and makes the others', async () => {
      writeList('podnet');
      const read = () => {
        throw new Error('no reading today');
      };
      const found = await problemsOf(node({}, { read }));
      expect(found.length).toBeGreaterThan(2);
      expect(found[0]?.found).toContain('no reading today');
    });

    test('reports a directory of sockets and locks that others may write to', async () => {
      writeList('podnet');
      fs.chmodSync(`${dir}/run`, 0o777);
      expect(await problemsOf(node())).toMatchObject([
        {
          id: 'permissions',
          severity: 'error',
          mend: `chown root "${dir}/run" && chmod go-w "${dir}/run"`,
          found: expect.stringMatching(
            /\/run" .* mode 0777: any user that can write there can replace our sockets, locks/,
          ),
        },
      ]);
    });

    test('reports directories of results and leases that every user may write to', async () => {
      writeList('podnet');
      fs.mkdirSync(`${dir}/leases/podnet`, { recursive: true });
      for (const name of ['cni', 'leases/podnet']) fs.chmodSync(`${dir}/${name}`, 0o777);
      expect((await problemsOf(node())).map(({ id, mend }) => [id, mend])).toEqual(
        ['cni', 'leases/podnet'].map(name => {
          const place = `"${dir}/${name}"`;
          return ['permissions', `chown root ${place} && chmod go-w ${place}`];
        }),
      );
    });

    test('does not report owners unknown to a user namespace, or rights that another user lacks', async () => {
      writeList('podnet');
      const uid = fs.statSync(`${dir}/run`).uid;
      const strange = { facts: node().facts, user: { id: 7, unknown: undefined } };
      if (uid !== 0) return;
      fs.chownSync(`${dir}/run`, 65_534, 65_534);
      expect(await idsOf(node({}, strange))).toEqual(['permissions']);
      expect(await idsOf(node({}, { user: { id: 0, unknown: 65_534 } }))).toEqual([]);
      const refused = {
        findStorageProblem: () => 'EACCES: permission denied',
        user: { id: 7, unknown: 65_534 },
      };
      expect(await problemsOf(node({}, refused))).toEqual([]);
      const storage = (await findProblems(node({}, refused))).filter(({ id }) => id === 'state.storage');
      expect(storage.map(({ severity }) => severity)).toEqual(Array(4).fill('unexamined'));
    });

    test('reports directories that others than root may write to, or that are not always the same', async () => {
      writeList('podnet');
      fs.chmodSync(`${dir}/bin`, 0o777);
      fs.chmodSync(`${dir}/conf/podnet.conflist`, 0o664);
      const problems = (await problemsOf(node({}, { pluginDirs: [`${dir}/bin`, 'bin'] }))).filter(
        ({ id }) => id === 'permissions',
      );
      expect(problems.map(({ severity, found }) => [severity, found])).toEqual([
        [
          'error',
          expect.stringMatching(
            /\/bin" .* mode 0777: any user that can write there can decide what root runs/,
          ),
        ],
        ['error', expect.stringContaining('podnet.conflist')],
        ['warning', expect.stringContaining('plugin directory "bin" is relative')],
      ]);
    });
  },
  NEEDS_ROOT,
);
