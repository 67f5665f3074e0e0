// Does the delegate runner get on with every container runtime, as different as they call it?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { type Container, directories, type Lab, type Row, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';
import { echo, ping, startServer } from '../helpers/traffic.ts';

// Installed once per host, and empty without attachments.
const SKELETON = {
  ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'],
};

/** What one runtime does. */
interface Runtime {
  readonly cniVersion: string;
  readonly args: string;
  /** What it offers, under its own spelling. */
  readonly runtimeConfig: Row;
  /** Asked before the first pod. */
  readonly asksStatus?: boolean;
  /** Right after each ADD. */
  readonly checks?: boolean;
  /** At its start, with the pods that it knows. */
  readonly collects?: boolean;
  /** What it passes on DEL: the namespace is gone by then, or its path is. */
  readonly delNetns: 'there' | 'gone' | 'unsaid';
  /** DEL gets the result of ADD. */
  readonly delResult: boolean;
}

const POD = ['K8S_POD_NAMESPACE=ns', 'K8S_POD_NAME=web', 'K8S_POD_INFRA_CONTAINER_ID=abc', 'K8S_POD_UID=u'];
const ANNOTATIONS = 'io.kubernetes.cri.pod-annotations';
const WANTS_BLUE = { 'k8s.v1.cni.cncf.io/networks': 'blue@lan0' };

const RUNTIMES: Readonly<Record<string, Runtime>> = {
  'containerd 1.6': {
    cniVersion: '1.0.0',
    // A Go map: every call has another order.
    args: [POD[3], 'IgnoreUnknown=1', POD[1], POD[2], POD[0]].join(';'),
    runtimeConfig: {
      portMappings: [{ HostPort: 8080, ContainerPort: 80, Protocol: 'tcp', HostIP: '' }],
      bandwidth: { IngressRate: 8e7, IngressBurst: 4294967295, EgressRate: 8e7, EgressBurst: 4294967295 },
      dns: { Servers: ['10.0.0.53'], Searches: ['cluster.local'], Options: [] },
      'io.kubernetes.cri.cgroup-path': '/kubepods/x',
      [ANNOTATIONS]: WANTS_BLUE,
    },
    delNetns: 'gone',
    delResult: true,
  },
  'containerd 2, after the namespace was unmounted': {
    cniVersion: '1.1.0',
    args: ['IgnoreUnknown=1', ...POD].toReversed().join(';'),
    runtimeConfig: {
      portMappings: [{ HostPort: 8080, ContainerPort: 80, Protocol: 'tcp', HostIP: '' }],
      [ANNOTATIONS]: { ...WANTS_BLUE, 'kubernetes.io/config.source': 'api' },
    },
    asksStatus: true,
    delNetns: 'unsaid',
    delResult: false,
  },
  'CRI-O': {
    cniVersion: '1.1.0',
    args: ['IgnoreUnknown=1', ...POD].join(';'),
    runtimeConfig: {
      portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
      bandwidth: { ingressRate: 8e7, ingressBurst: 34359738359 },
      cgroupPath: '/kubepods/x',
      aliases: { pods: ['web'] },
      [ANNOTATIONS]: WANTS_BLUE,
    },
    asksStatus: true,
    checks: true,
    collects: true,
    delNetns: 'there',
    delResult: true,
  },
  'podman 4': {
    cniVersion: '0.4.0',
    args: 'IgnoreUnknown=1;K8S_POD_NAME=web;IP=10.41.0.77;MAC=02:00:00:00:00:77;CATENA_NETWORKS=blue@lan0',
    runtimeConfig: {
      portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
      aliases: { pods: ['web'] },
    },
    delNetns: 'there',
    delResult: true,
  },
};

function network(lab: Lab, name: string, net: number, more: Row = {}, plugins: Row[] = []): Row {
  const ipam = { type: 'host-local', subnet: `10.${net}.0.0/24`, dataDir: `${lab.tmp}/leases` };
  return {
    name,
    plugins: [{ type: 'bridge', bridge: `br-${name}`, isGateway: true, ipam, ...more }, ...plugins],
  };
}

function runner(lab: Lab, cniVersion: string): Row {
  const portmap = { type: 'portmap', capabilities: { portMappings: true } };
  const bandwidth = { type: 'bandwidth', capabilities: { bandwidth: true } };
  const red = network(lab, 'red', 41, { isDefaultGateway: true, capabilities: { mac: true } }, [
    portmap,
    bandwidth,
  ]);
  return {
    cniVersion,
    name: 'pods',
    type: 'catena',
    confDir: `${lab.tmp}/net.d`,
    capabilities: { portMappings: true, bandwidth: true, [ANNOTATIONS]: true },
    delegates: [red],
  };
}

async function addBlue(lab: Lab): Promise<void> {
  const blue = JSON.stringify({ cniVersion: '1.0.0', ...network(lab, 'blue', 42) });
  await lab.run(lab.host, ['install', '-D', '/dev/stdin', `${lab.tmp}/net.d/blue.conflist`], { stdin: blue });
}

describeRoot('the delegate runner', () => {
  test.each(Object.entries(RUNTIMES))('is called by %s', async (_, runtime) => {
    const { cniVersion, args, runtimeConfig, delNetns } = runtime;
    await withHost(async lab => {
      const [container, other] = [await lab.container(), await lab.container()];
      await addBlue(lab);
      const conf = runner(lab, cniVersion);
      const call = (command: string, of: Container, more: Row = {}) =>
        lab.plugin('catena', { command, conf: { ...conf, runtimeConfig }, container: of, args, ...more });
      const before = await lab.dump(lab.host, SKELETON);

      if (runtime.asksStatus)
        expect(await lab.plugin('catena', { command: 'STATUS', conf })).toMatchObject({ exitCode: 0 });
      const added = await call('ADD', container);
      expect(added).toMatchObject({ exitCode: 0, stderr: '' });
      expect(added.result.cniVersion).toBe(cniVersion);
      // What containerd looks for: the interface by its name, with a sandbox, and addresses that point to it.
      const { interfaces, ips } = added.result;
      const own = interfaces.findIndex((one: Row) => one.name === 'eth0' && one.sandbox === container.path);
      expect(ips.map((ip: Row) => ip.interface)).toEqual([own]);
      const prevResult = added.result;
      if (runtime.checks)
        expect(await call('CHECK', container, { prevResult })).toMatchObject({ exitCode: 0, stdout: '' });

      const links = (await lab.ip(container, 'link')).map(({ ifname }) => ifname);
      expect(links).toEqual(['lo', 'eth0', 'lan0']);
      for (const address of ['10.41.0.1', '10.42.0.1'])
        expect(await ping(lab, container, address)).toBe(true);
      await startServer(lab, container, { protocol: 'tcp', port: 80 });
      const mapped = { protocol: 'tcp', address: '10.41.0.1', port: 8080, text: 'hello' } as const;
      expect(await echo(lab, lab.host, mapped)).toMatchObject({ text: 'hello' });
      if (args.includes('IP=')) {
        expect(ips[0].address).toBe('10.41.0.77/24');
        const [lan] = await lab.ip(container, 'address', 'show', 'dev', 'lan0');
        expect(lan).not.toMatchObject({ address: '02:00:00:00:00:77' });
      }

      if (runtime.collects) {
        const gc = { ...conf, 'cni.dev/valid-attachments': [{ containerID: container.id, ifname: 'eth0' }] };
        expect(await lab.plugin('catena', { command: 'GC', conf: gc })).toMatchObject({
          exitCode: 0,
          stdout: '',
        });
        expect(await call('CHECK', container, { prevResult })).toMatchObject({ exitCode: 0 });
      }
      if (delNetns === 'gone') await lab.remove(container);
      const env = delNetns === 'unsaid' ? { CNI_NETNS: '' } : {};
      const result = runtime.delResult ? { prevResult } : {};
      expect(await call('DEL', container, { env, ...result })).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      // DEL of a pod whose ADD never came, which every runtime may ask for.
      expect(await call('DEL', other, { env })).toMatchObject({ exitCode: 0, stdout: '', stderr: '' });
    });
  });

  test('answers in the version of its list, and its networks have it too', async () => {
    const cniVersion = LATEST_SPEC_VERSION;
    await withHost(async lab => {
      const container = await lab.container();
      const conf = {
        ...runner(lab, cniVersion),
        delegates: [network(lab, 'red', 41), network(lab, 'blue', 42)],
      };
      const call = (command: string, prevResult?: Row) =>
        lab.plugin('catena', { command, conf, container, prevResult });
      const before = await lab.dump(lab.host, SKELETON);
      const { result, ...added } = await call('ADD');
      expect(added).toMatchObject({ exitCode: 0 });
      expect(result.cniVersion).toBe(cniVersion);
      expect(JSON.stringify(result)).toContain('10.41.0.2/24');
      expect(await call('CHECK', result)).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await call('DEL')).toMatchObject({ exitCode: 0, stdout: '' });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
    });
  });

  test('[1.1.0] two lists for one container at once, as containerd attaches them, and both are deleted', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const listOf = (name: string, net: number) => ({
        ...runner(lab, '1.1.0'),
        name,
        interfacePrefix: `${name}-`,
        delegates: [network(lab, `${name}0`, net), network(lab, `${name}1`, net + 1)],
      });
      const [one, two] = [listOf('one', 51), listOf('two', 61)];
      const call = (command: string, conf: Row, ifname: string) =>
        lab.plugin('catena', { command, conf, container, ifname });
      const before = await lab.dump(lab.host, SKELETON);
      const added = await Promise.all([call('ADD', one, 'eth0'), call('ADD', two, 'eth1')]);
      expect(added.map(({ exitCode, stdout }) => (exitCode === 0 ? 'ok' : stdout))).toEqual(['ok', 'ok']);
      const links = (await lab.ip(container, 'link')).map(({ ifname }) => ifname);
      expect(links.sort()).toEqual(['eth0', 'eth1', 'lo', 'one-1', 'two-1']);
      const deleted = await Promise.all([call('DEL', one, 'eth0'), call('DEL', two, 'eth1')]);
      expect(deleted.map(({ exitCode, stdout }) => (exitCode === 0 ? 'ok' : stdout))).toEqual(['ok', 'ok']);
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await lab.ip(container, 'link')).toHaveLength(1);
    });
  });

  test('[1.1.0] DEL waits for, or finishes, an ADD whose caller has given up', async () => {
    await withHost(async lab => {
      const container = await lab.container();
      const conf = {
        ...runner(lab, '1.1.0'),
        delegates: [1, 2, 3, 4].map(i => network(lab, `n${i}`, 70 + i)),
      };
      const before = await lab.dump(lab.host, SKELETON);
      const call = (command: string) => lab.plugin('catena', { command, conf, container });
      const adding = call('ADD');
      while ((await lab.ip(container, 'link')).length < 2) await Bun.sleep(5);
      const deleted = await call('DEL');
      expect(deleted).toMatchObject({ exitCode: 0, stdout: '' });
      await adding;
      expect(await call('DEL')).toMatchObject({ exitCode: 0 });
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await lab.ip(container, 'link')).toHaveLength(1);
    });
  });

  test('[1.1.0] DEL undoes an ADD whose process was killed at any point', async () => {
    await withHost(async lab => {
      const conf = { ...runner(lab, '1.1.0'), delegates: [1, 2, 3].map(i => network(lab, `n${i}`, 70 + i)) };
      // What containers share is there as long as there is one.
      const first = await lab.container();
      const shared = await lab.plugin('catena', { command: 'ADD', conf, container: first });
      expect(shared).toMatchObject({ exitCode: 0 });
      // Without the automatic IPv6 configuration of the first one's ports.
      const state = async () => {
        const { links, nft } = await lab.dump(lab.host, SKELETON);
        const files = [
          'find',
          `${lab.tmp}/state`,
          `${lab.tmp}/leases`,
          '-type',
          'f',
          '-name',
          '*[:.]*',
          '-not',
          '-name',
          '.*',
        ];
        const { stdout } = await lab.run(lab.host, files);
        return { links: links.map(({ ifname }) => ifname), nft, files: stdout.split('\n').sort() };
      };
      const before = await state();
      const environment = {
        ...directories(lab.tmp),
        CNI_COMMAND: 'ADD',
        CNI_IFNAME: 'eth0',
        CNI_PATH: BIN_DIR,
      };
      fs.writeFileSync(`${lab.tmp}/conf.json`, JSON.stringify(conf));
      for (const ms of [5, 15, 25, 35, 45, 60, 75, 90]) {
        const container = await lab.container();
        const own = { ...environment, CNI_CONTAINERID: container.id, CNI_NETNS: container.path };
        const env = Object.entries(own).map(([name, value]) => `${name}=${value}`);
        const script = ['sh', '-c', 'exec "$1" < "$0"', `${lab.tmp}/conf.json`, `${BIN_DIR}/catena`];
        const child = lab.start(lab.host, ['env', ...env, ...script]);
        await Bun.sleep(ms);
        child.kill('SIGKILL');
        await child.exited;
        const deleted = await lab.plugin('catena', { command: 'DEL', conf, container });
        expect([ms, deleted.exitCode, deleted.stdout]).toEqual([ms, 0, '']);
        expect([ms, await state()]).toEqual([ms, before]);
        expect([ms, (await lab.ip(container, 'link')).length]).toEqual([ms, 1]);
      }
    });
  });

  test('[1.1.0] an ADD that is terminated undoes what it has done, and reports it', async () => {
    await withHost(async lab => {
      const conf = {
        ...runner(lab, '1.1.0'),
        delegates: [1, 2, 3, 4].map(i => network(lab, `n${i}`, 70 + i)),
      };
      fs.writeFileSync(`${lab.tmp}/conf.json`, JSON.stringify(conf));
      const before = await lab.dump(lab.host, SKELETON);
      const container = await lab.container();
      const own = { CNI_CONTAINERID: container.id, CNI_NETNS: container.path, CNI_COMMAND: 'ADD' };
      const all = { ...directories(lab.tmp), ...own, CNI_IFNAME: 'eth0', CNI_PATH: BIN_DIR };
      const env = Object.entries(all).map(([name, value]) => `${name}=${value}`);
      const script = ['sh', '-c', 'exec "$1" < "$0"', `${lab.tmp}/conf.json`, `${BIN_DIR}/catena`];
      const child = lab.start(lab.host, ['env', ...env, ...script]);
      while ((await lab.ip(container, 'link')).length < 2 && child.exitCode === null) await Bun.sleep(2);
      child.kill('SIGTERM');
      const [exitCode, stdout] = await Promise.all([child.exited, child.stdout.text()]);
      // It may have come to its end before the signal did.
      if (exitCode === 0)
        expect(await lab.plugin('catena', { command: 'DEL', conf, container })).toMatchObject({
          exitCode: 0,
        });
      else expect(JSON.parse(stdout).msg).toContain('it was interrupted');
      expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      expect(await lab.ip(container, 'link')).toHaveLength(1);
    });
  });
});
