// Does the delegate runner give a container all of its networks, or none, and take them all away again?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Container, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR, type PluginReply, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeNeeding, describeRoot, requiresReference, requiresRoot } from '../helpers/skip.ts';
import { ping } from '../helpers/traffic.ts';

// Installed once per host, and empty without attachments.
const SKELETON = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'] };

/** A network whose bridge, subnet and leases are its own. */
function bridged(lab: Lab, name: string, net: number, more: Row = {}, plugins: Row[] = []): Row {
  return {
    cniVersion: '1.1.0',
    name,
    plugins: [
      {
        type: 'bridge',
        bridge: `br-${name}`,
        isGateway: true,
        ...more,
        ipam: {
          type: 'host-local',
          ranges: [[{ subnet: `10.${net}.0.0/24` }], [{ subnet: `fd${net}::/64` }]],
          dataDir: `${lab.tmp}/leases`,
          ...more.ipam,
        },
      },
      ...plugins,
    ],
  };
}

function runner(lab: Lab, more: Row): Row {
  return { cniVersion: '1.1.0', name: 'pods', type: 'catena', confDir: `${lab.tmp}/net.d`, ...more };
}

const call = (
  lab: Lab,
  command: string,
  conf: Row,
  container: Container,
  more: Row = {},
): Promise<PluginReply> => lab.plugin('catena', { command, conf, container, ...more });

const ifnames = async (lab: Lab, container: Container) =>
  (await lab.ip(container, 'link')).map(({ ifname }) => ifname);

const files = async (lab: Lab) => {
  const { stdout } = await lab.run(lab.host, ['find', lab.tmp, '-type', 'f', '-path', '*', '-size', '+0']);
  const kept =
    /\/state\/(history\/|(delegates|pods)\/(boot$|caches\/))|\/(run|net\.d)\/|\/last_reserved_ip|\/lock$|\/\.catena-|\.conflist$/;
  return stdout.split('\n').filter(file => file !== '' && !kept.test(file));
};

describeRoot('the delegate runner', () => {
  test('[1.1.0] attaches two networks, each with traffic, and detaches both', async () => {
    await withHost(async lab => {
      const [one, two] = [await lab.container(), await lab.container()];
      const conf = runner(lab, {
        delegates: [bridged(lab, 'red', 41, { isDefaultGateway: true }), bridged(lab, 'blue', 42)],
      });
      const before = await lab.dump(lab.host, SKELETON);
      const added = await call(lab, 'ADD', conf, one);
      expect(added).toMatchObject({ exitCode: 0, stderr: '' });
      expect(added.result.cniVersion).toBe('1.1.0');
      expect(added.result.ips.map((ip: Row) => ip.address)).toEqual(['10.41.0.2/24', 'fd41::2/64']);
      expect(await ifnames(lab, one)).toEqual(['lo', 'eth0', 'net1']);
      expect(await call(lab, 'ADD', conf, two)).toMatchObject({ exitCode: 0 });
      for (const address of [
        '10.41.0.1',
        '10.42.0.1',
        'fd41::1',
        'fd42::1',
        '10.41.0.3',
        '10.42.0.3',
        'fd42::3',
      ])
        expect([address, await ping(lab, one, address)]).toEqual([address, true]);

      const prevResult = added.result;
      expect(await call(lab, 'CHECK', conf, one, { prevResult })).toMatchObject({ exitCode: 0, stdout: '' });
      for (const container of [one, two, one]) {
        expect(await call(lab, 'DEL', conf, container, { prevResult })).toMatchObject({
          exitCode: 0,
          stdout: '',
          stderr: '',
        });
      }
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await ifnames(lab, one)).toEqual(['lo']);
      expect(await files(lab)).toEqual([]);
    });
  });

  test('[1.1.0] a failure in the middle leaves no interface, route, lease or record', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const bad = bridged(lab, 'bad', 43, {}, [{ type: 'tuning', sysctl: { 'net.core.no_such_key': '1' } }]);
      const delegates = [
        bridged(lab, 'red', 41, { isDefaultGateway: true }),
        bridged(lab, 'blue', 42),
        bad,
        bridged(lab, 'green', 44),
      ];
      const before = await lab.dump(lab.host, SKELETON);
      const inside = await lab.dump(container);
      const { exitCode, error, stderr } = await call(lab, 'ADD', runner(lab, { delegates }), container);
      expect(exitCode).toBe(1);
      expect(error).toMatchObject({ cniVersion: '1.1.0', code: expect.any(Number) });
      expect(error?.msg).toContain('no_such_key');
      expect(JSON.parse(stderr)).toMatchObject({ level: 'warn', delegate: 'bad', delegate_ifname: 'net2' });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await lab.dump(container)).toEqual(inside);
      expect(await files(lab)).toEqual([]);
    });
  });

  test('[1.1.0] the name of an existing interface is refused before anything is changed', async () => {
    await withHost(async lab => {
      const one = await lab.container();
      // The kernel takes no new interface of a name that is another one's alternative name either.
      const names = ['dummy0', 'altname'].map((name, i) => ({ name, peer: `other${i}` }));
      for (const { name, peer } of names) {
        await lab.ip(one, 'link', 'add', name === 'altname' ? 'long0' : name, 'type', 'veth', 'peer', peer);
      }
      await lab.ip(one, 'link', 'property', 'add', 'dev', 'long0', 'altname', 'altname');
      const before = await lab.dump(one);
      for (const { name } of names) {
        const red = bridged(lab, 'red', 41);
        const conf = runner(lab, {
          delegates: [red],
          networks: [{ config: { ...red, name: 'two' }, interface: name }],
        });
        const refused = await call(lab, 'ADD', conf, one);
        expect(refused.error).toMatchObject({
          code: 4,
          msg: expect.stringContaining(`already has an interface "${name}"`),
        });
      }
      expect(await lab.dump(one)).toEqual(before);
      expect(await files(lab)).toEqual([]);
    });
  });

  test('[1.1.0] DEL needs only the record, without the former configuration, its files and the namespace', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const dir = `${lab.tmp}/net.d`;
      fs.mkdirSync(dir);
      fs.writeFileSync(`${dir}/blue.conflist`, JSON.stringify(bridged(lab, 'blue', 42)));
      const delegates = [bridged(lab, 'red', 41, { ipMasq: true }), { name: 'blue' }];
      const before = await lab.dump(lab.host, SKELETON);
      expect(await call(lab, 'ADD', runner(lab, { delegates }), container)).toMatchObject({ exitCode: 0 });
      fs.rmSync(dir, { recursive: true });
      await lab.remove(container);
      const changed = runner(lab, {
        delegates: 'none',
        network: 5,
        interfacePrefix: 'much-too-long-a-prefix',
      });
      expect(await call(lab, 'DEL', changed, container)).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await files(lab)).toEqual([]);
    });
  });

  test.each<[string, Row, Record<string, string>]>([
    ['the first network', {}, { v4: 'eth0', v6: 'eth0' }],
    ['another one', { defaultRoute: 'blue' }, { v4: 'net1', v6: 'net1' }],
    ['one for each family', { defaultRoute: { ipv6: 'net1' } }, { v4: 'eth0', v6: 'net1' }],
  ])('[1.1.0] the default route is that of %s', async (_, conf, owner) => {
    await withHost(async lab => {
      const [container, outside] = [await lab.container(), await lab.outside()];
      await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
      const more = { isDefaultGateway: true, ipMasq: true };
      const delegates = [bridged(lab, 'red', 41, more), bridged(lab, 'blue', 42, more)];
      const { result, ...added } = await call(lab, 'ADD', runner(lab, { delegates, ...conf }), container);
      expect(added).toMatchObject({ exitCode: 0 });
      const defaults = async (family: string) =>
        (await lab.ip(container, family, 'route', 'show', 'default')).map(({ dev }) => dev);
      expect({ v4: await defaults('-4'), v6: await defaults('-6') }).toEqual({
        v4: [owner.v4],
        v6: [owner.v6],
      });
      const returned = result.routes?.map(({ dst }: Row) => dst) ?? [];
      expect(returned).toEqual([
        ...(owner.v4 === 'eth0' ? ['0.0.0.0/0'] : []),
        ...(owner.v6 === 'eth0' ? ['::/0'] : []),
      ]);
      for (const address of Object.values(outside.address))
        expect([address, await ping(lab, container, address)]).toEqual([address, true]);
      expect(
        await call(lab, 'CHECK', runner(lab, { delegates }), container, { prevResult: result }),
      ).toMatchObject({
        exitCode: 0,
        stdout: '',
      });
      expect(await call(lab, 'DEL', runner(lab, { delegates }), container)).toMatchObject({ exitCode: 0 });
    });
  });

  test('[1.1.0] a pod requests gateways, addresses and names by its annotation', async () => {
    await withHost(async lab => {
      const [container, outside] = [await lab.container(), await lab.outside()];
      const dir = `${lab.tmp}/net.d`;
      fs.mkdirSync(dir);
      const blue = bridged(lab, 'blue', 42, { ipMasq: true, ipam: { type: 'host-local' } });
      // A pod brings its host no subnet: the configuration names the one that pods may ask for.
      blue.plugins[0].ipam = { type: 'static', subnet: '10.42.0.0/24' };
      blue.plugins[0].capabilities = { ips: true, mac: true };
      fs.writeFileSync(`${dir}/blue.conflist`, JSON.stringify(blue));
      await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
      const asked = { name: 'blue', interface: 'lan0', ips: ['10.42.0.7/24'], mac: '02:00:00:00:00:77' };
      const annotations = {
        'k8s.v1.cni.cncf.io/networks': JSON.stringify([{ ...asked, 'default-route': ['10.42.0.1'] }]),
      };
      const conf = runner(lab, {
        delegates: [bridged(lab, 'red', 41, { isDefaultGateway: true })],
        capabilities: { 'io.kubernetes.cri.pod-annotations': true },
        runtimeConfig: { 'io.kubernetes.cri.pod-annotations': annotations },
      });
      const { result, ...added } = await call(lab, 'ADD', conf, container);
      expect(added).toMatchObject({ exitCode: 0 });
      const [lan] = await lab.ip(container, 'address', 'show', 'dev', 'lan0');
      expect(lan).toMatchObject({ address: '02:00:00:00:00:77' });
      expect(lan?.addr_info[0]).toMatchObject({ local: '10.42.0.7', prefixlen: 24 });
      const routes = await lab.ip(container, '-4', 'route', 'show', 'default');
      expect(routes.map(({ gateway, dev }) => [gateway, dev])).toEqual([['10.42.0.1', 'lan0']]);
      expect(await ping(lab, container, outside.address.v4)).toBe(true);
      expect(await call(lab, 'CHECK', conf, container, { prevResult: result })).toMatchObject({
        exitCode: 0,
      });
      expect(await call(lab, 'DEL', conf, container)).toMatchObject({ exitCode: 0 });
      expect(await ifnames(lab, container)).toEqual(['lo']);
    });
  });

  test('[1.1.0] default routes of other tables stay with their network, and CHECK looks at them', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const routing = (name: string, net: number) =>
        bridged(lab, name, net, {
          isDefaultGateway: true,
          ipam: { routes: [{ dst: '0.0.0.0/0', table: net }] },
        });
      const delegates = [routing('red', 41), routing('blue', 42)];
      const conf = runner(lab, { delegates, defaultRoute: 'blue' });
      const { result } = await call(lab, 'ADD', conf, container);
      expect(result.routes).toEqual([{ dst: '0.0.0.0/0', table: 41 }]);
      const others = () => lab.ip(container, 'route', 'show', 'default', 'table', '41');
      expect(await others()).toMatchObject([{ gateway: '10.41.0.1', dev: 'eth0' }]);
      await lab.batch(container, 'route delete default table 41');
      const { error } = await call(lab, 'CHECK', conf, container, { prevResult: result });
      expect(error?.msg).toContain('table 41');
    });
  });
  test('[1.1.0] a pod has the default route that it asks for with a network that routes by source', async () => {
    await withHost(async lab => {
      const [container, outside] = [await lab.container(), await lab.outside()];
      const dir = `${lab.tmp}/net.d`;
      fs.mkdirSync(dir);
      const blue = bridged(lab, 'blue', 42, { ipMasq: true }, [{ type: 'sbr' }]);
      fs.writeFileSync(`${dir}/blue.conflist`, JSON.stringify(blue));
      const confWith = (gateways: string[]) => {
        const networks = JSON.stringify([{ name: 'blue', 'default-route': gateways }]);
        return runner(lab, {
          delegates: [bridged(lab, 'red', 41, { isDefaultGateway: true })],
          capabilities: { 'io.kubernetes.cri.pod-annotations': true },
          runtimeConfig: {
            'io.kubernetes.cri.pod-annotations': { 'k8s.v1.cni.cncf.io/networks': networks },
          },
        });
      };
      for (const [gateways, words] of [
        [['10.43.0.1'], 'names 10.43.0.1, which is in no subnet of its addresses (10.42.0.'],
        [['fd43::1'], 'names fd43::1, which is in no subnet'],
        [['10.42.0.1', '10.42.0.9'], 'names 10.42.0.1 and 10.42.0.9; only one may be its gateway'],
      ] as const) {
        const { error } = await call(lab, 'ADD', confWith([...gateways]), container);
        expect(error).toMatchObject({ code: 7, msg: expect.stringContaining(words) });
        expect(await ifnames(lab, container)).toEqual(['lo']);
      }
      const conf = confWith(['10.42.0.1', '10.42.0.1', 'fd42::1']);
      const { result, ...added } = await call(lab, 'ADD', conf, container);
      expect(added).toMatchObject({ exitCode: 0 });
      const defaults = async () => {
        const both = await Promise.all(
          ['-4', '-6'].map(family => lab.ip(container, family, 'route', 'show', 'default')),
        );
        return both.flat().map(({ gateway, dev }) => [gateway, dev]);
      };
      const asked = [
        ['10.42.0.1', 'net1'],
        ['fd42::1', 'net1'],
      ];
      expect(await defaults()).toEqual(asked);
      expect(await ping(lab, container, outside.address.v4)).toBe(true);
      for (const env of [{}, { CATENA_REPAIR: '1' }])
        expect(await call(lab, 'CHECK', conf, container, { prevResult: result, env })).toMatchObject({
          exitCode: 0,
        });
      expect(await defaults()).toEqual(asked);
      expect(await call(lab, 'DEL', conf, container)).toMatchObject({ exitCode: 0 });
      expect(await ifnames(lab, container)).toEqual(['lo']);
    });
  });

  test('[1.1.0] GC removes what a lost container left, in every network, and keeps the others', async () => {
    await withHost(async lab => {
      const [lost, kept] = [await lab.container(), await lab.container()];
      const conf = runner(lab, { delegates: [bridged(lab, 'red', 41), bridged(lab, 'blue', 42)] });
      expect(await call(lab, 'ADD', conf, kept)).toMatchObject({ exitCode: 0 });
      const before = await lab.dump(lab.host);
      const filesBefore = await files(lab);
      expect(await call(lab, 'ADD', conf, lost)).toMatchObject({ exitCode: 0 });
      await lab.remove(lost);
      const valid = { ...conf, 'cni.dev/valid-attachments': [{ containerID: kept.id, ifname: 'eth0' }] };
      expect(await lab.plugin('catena', { command: 'GC', conf: valid })).toMatchObject({
        exitCode: 0,
        stdout: '',
      });
      expect(await lab.dump(lab.host)).toEqual(before);
      expect((await files(lab)).sort()).toEqual(filesBefore.sort());
      expect(await call(lab, 'CHECK', conf, kept)).toMatchObject({ exitCode: 0 });
      for (const address of ['10.41.0.1', '10.42.0.1']) expect(await ping(lab, kept, address)).toBe(true);
    });
  });

  test('[1.1.0] is not ready until its file exists: ADD fails with 11, STATUS with 50', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = runner(lab, {
        delegates: [bridged(lab, 'red', 41)],
        readinessFile: `${lab.tmp}/net.d/ready`,
      });
      expect((await call(lab, 'ADD', conf, container)).error).toMatchObject({ code: 11 });
      expect((await lab.plugin('catena', { command: 'STATUS', conf })).error).toMatchObject({ code: 50 });
      fs.mkdirSync(`${lab.tmp}/net.d`);
      fs.writeFileSync(`${lab.tmp}/net.d/ready`, '');
      expect(await lab.plugin('catena', { command: 'STATUS', conf })).toMatchObject({
        exitCode: 0,
        stdout: '',
      });
      expect(await call(lab, 'ADD', conf, container)).toMatchObject({ exitCode: 0 });
      expect(await call(lab, 'DEL', conf, container)).toMatchObject({ exitCode: 0 });
    });
  });

  test('[1.0.0] logs and traces each plugin call in the configured files', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const [logFile, traceFile] = [`${lab.tmp}/log`, `${lab.tmp}/trace`];
      const more = { logFile, logLevel: 'verbose', logToStderr: false, traceFile };
      const conf = { ...runner(lab, { delegates: [bridged(lab, 'red', 41)], ...more }), cniVersion: '1.0.0' };
      const TRACEPARENT = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
      const args = 'IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web';
      expect(await call(lab, 'ADD', conf, container, { env: { TRACEPARENT }, args })).toMatchObject({
        exitCode: 0,
        stderr: '',
      });
      const lines = (file: string) =>
        fs
          .readFileSync(file, 'utf8')
          .trim()
          .split('\n')
          .map(line => JSON.parse(line));
      expect(lines(logFile)).toEqual([
        expect.objectContaining({
          level: 'info',
          network: 'pods',
          container_id: container.id,
          pod_namespace: 'ns',
          pod_name: 'web',
          delegate: 'red',
          plugin: 'bridge',
          plugin_index: 0,
          command: 'ADD',
          duration_ms: expect.any(Number),
        }),
      ]);
      expect(lines(traceFile)).toEqual([
        expect.objectContaining({
          plugin: 'bridge',
          traceId: '0af7651916cd43dd8448eb211c80319c',
          parentSpanId: 'b7ad6b7169203331',
        }),
      ]);
      expect(await call(lab, 'DEL', conf, container)).toMatchObject({ exitCode: 0 });
    });
  });

  test('[1.0.0] keeps a trace of each call in the configured directory, and works without one', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const traceDir = `${lab.tmp}/traces`;
      const more = { delegates: [bridged(lab, 'red', 41)], traceDir, traceFile: '/dev/full' };
      const conf = { ...runner(lab, more), cniVersion: '1.0.0' };
      const env = { CATENA_LOG_LEVEL: 'warn' };
      const added = await call(lab, 'ADD', conf, container, { env });
      expect(added).toMatchObject({ exitCode: 0 });
      expect(added.stderr).toContain('ENOSPC');
      expect(added.stdout).not.toContain('transactions');
      expect(await call(lab, 'DEL', conf, container)).toMatchObject({ exitCode: 0 });
      const records = fs
        .readdirSync(traceDir)
        .sort()
        .map(name => JSON.parse(fs.readFileSync(`${traceDir}/${name}`, 'utf8')));
      expect(records).toMatchObject([
        { verb: 'ADD', network: 'pods', containerId: container.id, code: 0, warm: false, result: {} },
        { verb: 'DEL', network: 'pods', code: 0, finishes: [{ network: 'red' }] },
      ]);
      const [plugin] = records[0].plugins;
      expect(plugin).toMatchObject({ network: 'red', type: 'bridge' });
      expect(plugin.transactions.length).toBeGreaterThan(3);
      const wrong = { ...conf, traceDir: '/dev/null/nowhere' };
      const again = await call(lab, 'ADD', wrong, container, { env });
      expect(again).toMatchObject({ exitCode: 0 });
      expect(again.stderr).toContain('Cannot write trace file');
      expect(await call(lab, 'DEL', wrong, container)).toMatchObject({ exitCode: 0 });
    });
  });
});

describeNeeding(
  'the delegate runner with third-party plugins',
  () => {
    test.each<[string, Row, string]>([
      ['the first network', {}, 'eth0'],
      ['another one', { defaultRoute: 'blue' }, 'net1'],
    ])(
      '[1.0.0] two networks, the default route that of %s, CHECK, and nothing left',
      async (_, more, owner) => {
        await withHost(async lab => {
          const container = await lab.container();
          const networkOf = (name: string, net: number) => ({
            ...bridged(lab, name, net, { isDefaultGateway: true }),
            cniVersion: '1.0.0',
          });
          const delegates = [networkOf('red', 41), networkOf('blue', 42)];
          const conf = { ...runner(lab, { delegates, ...more }), cniVersion: '1.0.0' };
          const own = { binDir: BIN_DIR, cniPath: REFERENCE_BIN_DIR };
          const before = await lab.dump(lab.host, SKELETON);
          const { result, ...added } = await call(lab, 'ADD', conf, container, own);
          expect(added).toMatchObject({ exitCode: 0, stderr: '' });
          for (const family of ['-4', '-6']) {
            const defaults = await lab.ip(container, family, 'route', 'show', 'default');
            expect([family, ...defaults.map(({ dev }) => dev)]).toEqual([family, owner]);
          }
          expect(await call(lab, 'CHECK', conf, container, { ...own, prevResult: result })).toMatchObject({
            exitCode: 0,
            stdout: '',
          });
          expect(await call(lab, 'DEL', conf, container, { ...own, prevResult: result })).toMatchObject({
            exitCode: 0,
          });
          expect(await ifnames(lab, container)).toEqual(['lo']);
          const after = await lab.dump(lab.host, SKELETON);
          const left = after.links.map(({ ifname }) => ifname).filter(name => !name.startsWith('br-'));
          expect(left).toEqual(before.links.map(({ ifname }) => ifname));
          expect(await files(lab)).toEqual([]);
        });
      },
    );
  },
  requiresRoot(),
  requiresReference('bridge', 'host-local'),
);

describeRoot('the delegate runner as multus', () => {
  test.each<[string, Row]>([
    ['delegates', {}],
    ['clusterNetwork by name', { clusterNetwork: 'red', delegates: [] }],
    ['clusterNetwork by file', { clusterNetwork: 'net.d/red.conflist' }],
    ['clusterNetwork by directory', { clusterNetwork: 'net.d' }],
  ])('[0.4.0] runs a configuration with %s', async (_, more) => {
    await withHost(async lab => {
      const container = await lab.container();
      const dir = `${lab.tmp}/net.d`;
      fs.mkdirSync(dir);
      const red = { ...bridged(lab, 'red', 41), cniVersion: '0.3.1' };
      fs.writeFileSync(`${dir}/red.conflist`, JSON.stringify(red));
      fs.writeFileSync(`${dir}/x-blue.conflist`, JSON.stringify(bridged(lab, 'blue', 42)));
      const bin = `${lab.tmp}/bin`;
      fs.mkdirSync(bin);
      fs.symlinkSync(`${BIN_DIR}/catena`, `${bin}/multus`);
      const cluster = more.clusterNetwork?.includes('net.d')
        ? { clusterNetwork: `${lab.tmp}/${more.clusterNetwork}` }
        : {};
      const conf = {
        cniVersion: '0.4.0',
        name: 'multus-cni-network',
        type: 'multus',
        capabilities: { portMappings: true },
        confDir: dir,
        cniDir: `${lab.tmp}/multus`,
        binDir: BIN_DIR,
        readinessindicatorfile: `${dir}/red.conflist`,
        logLevel: 'error',
        logFile: `${lab.tmp}/net.d/multus.log`,
        logOptions: { maxAge: 5, maxSize: 100, maxBackups: 5, compress: true },
        namespaceIsolation: false,
        systemNamespaces: ['kube-system'],
        multusNamespace: 'kube-system',
        retryDeleteOnError: true,
        delegates: [red],
        ...more,
        ...cluster,
        ...(more.clusterNetwork ? { defaultNetworks: ['blue'] } : {}),
      };
      const asMultus = { binDir: bin, cniPath: bin };
      const call = (command: string, prevResult?: Row) =>
        lab.plugin('multus', {
          command,
          conf,
          container,
          ...asMultus,
          ...(prevResult ? { prevResult } : {}),
        });
      const before = await lab.dump(lab.host, SKELETON);
      const { result, ...added } = await call('ADD');
      expect(added).toMatchObject({ exitCode: 0, stderr: '' });
      expect(result).toMatchObject({
        cniVersion: '0.4.0',
        ips: [{ version: '4', address: '10.41.0.2/24' }, { version: '6' }],
      });
      expect(await ifnames(lab, container)).toEqual(['lo', 'eth0', ...(more.clusterNetwork ? ['net1'] : [])]);
      expect(fs.readdirSync(`${lab.tmp}/multus/results`).sort()[more.clusterNetwork ? 1 : 0]).toBe(
        `red-${container.id}-eth0`,
      );
      expect(await call('CHECK', result)).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await call('DEL', result)).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
    });
  });
});
