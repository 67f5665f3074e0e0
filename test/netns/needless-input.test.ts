// Does a plugin fail for input that it has no use for? A container that cannot go is the worst of it.
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/registry.ts';
import { connect } from '../helpers/connected-pod.ts';
import { type Lab, type Row, withHost } from '../helpers/netns.ts';
import {
  describeRoot,
  type Need,
  requiresLinkKind,
  requiresUpperKind,
  requiresVlanDevices,
  requiresVrf,
  testNeeding,
} from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';

/** None of them is a list of pairs. */
const BAD_ARGS = ['none', 'A=b;', ';', 'A=b=c'];
const NO_TYPE = [undefined, '', null];

/** Plugins that use the host's `net0`. */
const USE_DEVICE = ['host-device', 'ipvlan', 'macvlan', 'vlan'];
/** Plugins that make the container's interface. */
const MAKE_INTERFACE = ['bridge', 'ptp', 'flannel', 'dummy', 'tap', ...USE_DEVICE];

/** What a plugin cannot work without. */
const NEEDS: Readonly<Record<string, Need>> = {
  dhcp: 'needs a DHCP server (test/netns/dhcp.test.ts)',
  dummy: requiresLinkKind('dummy'),
  ipvlan: requiresUpperKind('ipvlan'),
  macvlan: requiresUpperKind('macvlan'),
  vlan: requiresVlanDevices(),
  vrf: requiresVrf(),
  whereabouts: 'needs the API of a cluster, DEL as well (test/e2e/cluster-ipam.test.ts)',
};

/** Options for every plugin, in which nothing is wrong. */
function confOf(lab: Lab, name: string): Row {
  const dataDir = `${lab.tmp}/leases`;
  const hostLocal = { type: 'host-local', subnet: '10.66.0.0/24', dataDir };
  const own: Record<string, Row> = {
    bandwidth: { ingressRate: 8_000_000, ingressBurst: 8_000_000 },
    bridge: { bridge: 'cat0', ipam: hostLocal },
    catena: {
      stateDir: `${lab.tmp}/state`,
      cacheDir: `${lab.tmp}/cache`,
      confDir: lab.tmp,
      network: 'podnet',
    },
    cluster: { ipam: { type: 'cluster', subnets: [{ ipv4: '10.66.0.0/24' }], dataDir } },
    firewall: {},
    flannel: { subnetFile: `${lab.tmp}/subnet.env`, dataDir: `${lab.tmp}/flannel` },
    'host-device': { device: 'net0', ipam: hostLocal },
    'host-local': { ipam: hostLocal },
    ipvlan: { master: 'net0', ipam: hostLocal },
    macvlan: { master: 'net0', ipam: hostLocal },
    portmap: { runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] } },
    ptp: { ipam: hostLocal },
    static: { ipam: { type: 'static', addresses: [{ address: '10.66.0.9/24' }] } },
    tap: { ipam: hostLocal },
    tuning: { sysctl: { 'net.core.somaxconn': '500' }, dataDir: `${lab.tmp}/tuning` },
    vrf: { vrfname: 'blue' },
    vlan: { master: 'net0', vlanId: 7, ipam: hostLocal },
  };
  return { cniVersion: '1.0.0', name: 'podnet', type: name, ...own[name] };
}

describeRoot('input that a plugin does not use', () => {
  const deletable = [...PLUGIN_NAMES, RUNNER_NAME].filter(name => name !== 'whereabouts');
  test.each(deletable)('malformed CNI_ARGS do not fail DEL of %s', async name => {
    await withHost(async lab => {
      const [container, conf] = [await lab.container(), confOf(lab, name)];
      for (const args of BAD_ARGS) {
        expect(await lab.plugin(name, { command: 'DEL', conf, container, args })).toMatchObject({
          exitCode: 0,
          stdout: '',
        });
      }
    });
  });

  test.each(['bandwidth', 'firewall', 'loopback', 'portmap', 'sbr'])(
    'malformed CNI_ARGS do not fail any verb of %s',
    async name => {
      await withHost(async lab => {
        const { container, prevResult: connected } = await connect(lab);
        const conf = confOf(lab, name);
        const [prevResult, ifname] = name === 'loopback' ? [undefined, 'lo'] : [connected, 'eth0'];
        for (const args of BAD_ARGS) {
          const call = (command: string, prev: unknown) =>
            lab.plugin(name, { command, conf, container, args, ifname, prevResult: prev });
          const added = await call('ADD', prevResult);
          expect(added).toMatchObject({ exitCode: 0 });
          expect(await call('CHECK', added.result)).toMatchObject({ exitCode: 0 });
          expect(await call('DEL', added.result)).toMatchObject({ exitCode: 0 });
        }
      });
    },
  );

  test('malformed CNI_ARGS fail ADD of plugins that read an address or a MAC from them', async () => {
    await withHost(async lab => {
      const { container, prevResult } = await connect(lab);
      for (const name of ['bridge', 'host-local', 'static', 'tuning']) {
        for (const args of BAD_ARGS) {
          const call = {
            command: 'ADD',
            conf: confOf(lab, name),
            container,
            args,
            ifname: 'eth0',
            prevResult,
          };
          expect((await lab.plugin(name, call)).error).toMatchObject({ code: 4 });
        }
      }
    });
  });

  test('empty lists of "dns" are in no result: the reference leaves them out', async () => {
    await withHost(async lab => {
      const empty = { nameservers: [], search: [], options: [] };
      for (const [i, name] of ['static', 'ptp', 'bridge', 'ptp', 'bridge'].entries()) {
        const container = await lab.container();
        const ipam = {
          type: 'static',
          addresses: [{ address: `10.66.${i}.9/24`, gateway: `10.66.${i}.1` }],
          dns: empty,
        };
        const conf = {
          ...confOf(lab, name),
          cniVersion: LATEST_SPEC_VERSION,
          ipam,
          ...(i < 3 ? {} : { dns: empty }),
        };
        const added = await lab.plugin(name, { command: 'ADD', conf, container });
        expect(added).toMatchObject({ exitCode: 0 });
        expect(added.result.dns).toBeUndefined();
      }
      const { container, prevResult: known } = await connect(lab);
      const prevResult = { ...known, dns: { ...empty, domain: 'example.org' } };
      for (const name of ['portmap', 'bandwidth', 'firewall', 'tuning', 'sbr']) {
        const conf = { ...confOf(lab, name), cniVersion: '1.0.0' };
        const { result } = await lab.plugin(name, { command: 'ADD', conf, container, prevResult });
        expect(result.dns).toEqual({ domain: 'example.org' });
      }
    });
  });

  for (const name of PLUGIN_NAMES) {
    testNeeding(
      `${name} works without "type" in its configuration`,
      () => worksWithoutType(name),
      NEEDS[name],
    );
  }
});

async function worksWithoutType(name: string): Promise<void> {
  await withHost(async lab => {
    if (USE_DEVICE.includes(name)) {
      await lab.ip(lab.host, 'link', 'add', 'net0', 'type', 'veth', 'peer', 'net1');
      for (const end of ['net0', 'net1']) await lab.ip(lab.host, 'link', 'set', end, 'up');
    }
    const subnetEnv = ['FLANNEL_NETWORK=10.66.0.0/16', 'FLANNEL_SUBNET=10.66.1.1/24', 'FLANNEL_MTU=1450'];
    fs.writeFileSync(`${lab.tmp}/subnet.env`, [...subnetEnv, 'FLANNEL_IPMASQ=true', ''].join('\n'));
    const connected = MAKE_INTERFACE.includes(name) ? undefined : await connect(lab);
    const container = connected?.container ?? (await lab.container());
    const known = ['host-local', 'static', 'loopback'].includes(name) ? undefined : connected?.prevResult;
    for (const type of NO_TYPE) {
      const conf = { ...confOf(lab, name), type };
      const call = (command: string, prevResult: unknown) =>
        lab.plugin(name, {
          command,
          conf,
          container,
          prevResult,
          ifname: name === 'loopback' ? 'lo' : 'eth0',
        });
      const added = await call('ADD', known);
      expect(added).toMatchObject({ exitCode: 0 });
      expect(await call('CHECK', added.result)).toMatchObject({ exitCode: 0 });
      expect(await call('DEL', added.result)).toMatchObject({ exitCode: 0 });
    }
  });
}
