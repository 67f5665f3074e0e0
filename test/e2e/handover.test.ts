// Is there a way back to the reference plugins, under pods of containerd that live?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import { requiresContainerd, withContainerd } from '../helpers/containerd.ts';
import type { Pod } from '../helpers/cri.ts';
import { deadline } from '../helpers/deadline.ts';
import type { Machine } from '../helpers/machine.ts';
import type { Lab, Row } from '../helpers/netns.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { PODS } from '../helpers/pod-networks.ts';
import { findUnreachable, type Published } from '../helpers/published.ts';
import { describeRoot, requires, requiresReference } from '../helpers/skip.ts';

// Many processes each, which a busy machine takes its time for.
setDefaultTimeout(deadline(240_000));

const CATENA = `${BIN_DIR}/catena`;
const TYPES = ['bridge', 'host-local', 'portmap', 'bandwidth', 'firewall', 'tuning', 'loopback'];

/** A port of its own for each pod. */
const portsOf = (n: number): Published[] => [{ protocol: 'tcp', hostPort: 8080 + n, containerPort: 80 }];

/** As a package manager would. */
async function layReference(machine: Machine): Promise<void> {
  const files = TYPES.map(type => `${REFERENCE_BIN_DIR}/${type}`);
  await machine.ok(['cp', ...files, '/opt/cni/bin']);
}

const catena = (machine: Machine, ...args: string[]) =>
  machine.run([CATENA, ...args], { timeoutMs: 120_000 });

/** The state of containers, whichever plugins made it; bridges and shared chains are the network's. */
async function leftOf({ lab, path }: Machine): Promise<string[]> {
  const links = await lab.ip(lab.host, 'link', 'show');
  const devices = links.filter(({ linkinfo }) => ['veth', 'ifb'].includes(linkinfo?.info_kind));
  const rules = await rulesOf(lab);
  const files = ['/var/lib/cni/results', '/var/lib/cni/networks/pods', '/run/cni/tuning'].flatMap(dir =>
    (fs.existsSync(path(dir)) ? fs.readdirSync(path(dir)) : []).map(name => `${dir}/${name}`),
  );
  return [
    ...devices.flatMap(({ ifname }) => (ifname === 'outside0' ? [] : [ifname])),
    ...rules.filter(text => /catena:|10\.22\.0\.[2-9]\b|fd00:22::[2-9]\b|\b808\d\b/.test(text)),
    ...files.filter(file => !/\/(\.catena-[^/]*|last_reserved_ip\.\d|lock)$/.test(file)),
  ];
}

async function rulesOf(lab: Lab): Promise<string[]> {
  const tables: Row[] = await lab.nft(lab.host, 'list', 'ruleset');
  return tables.filter(row => !('table' in row)).map(row => JSON.stringify(row));
}

describeRoot(
  'pods of containerd attached by our plugins',
  () => {
    test('block the removal of our executables until they are handed over to the reference', async () => {
      await withContainerd([PODS], async ({ machine, containerd, outside }) => {
        const { lab } = machine;
        await machine.ok(['umount', '/opt/cni/bin']);
        await machine.ok([CATENA, 'install']);
        const cri = containerd.cri();
        const pods: Pod[] = [];
        for (const n of [0, 1]) pods.push(await cri.runPod({ name: `pod-${n}`, ports: portsOf(n) }));
        const installed = fs.readdirSync(machine.path('/opt/cni/bin'));

        const refused = await catena(machine, 'uninstall');
        expect(refused.exitCode).toBe(1);
        expect(refused.stdout).toContain('"bandwidth" and no "firewall"');
        expect(refused.stdout).toContain('nothing was uninstalled: ');
        expect(refused.stdout).toContain('--to <dir> names the executables to use');
        const pending = await catena(machine, 'uninstall', '--to', REFERENCE_BIN_DIR);
        expect(pending.exitCode).toBe(1);
        expect(pending.stdout).toContain('--hand-over makes them deletable by the restored executables');
        expect(fs.readdirSync(machine.path('/opt/cni/bin'))).toEqual(installed);

        const gone = await catena(machine, 'uninstall', '--purge', '--hand-over', '--to', REFERENCE_BIN_DIR);
        expect([gone.exitCode, gone.stderr]).toEqual([0, '']);
        expect(gone.stdout).toContain('2 handed over');
        expect(fs.readdirSync(machine.path('/opt/cni/bin'))).toEqual([]);
        const own = ['/run/catena', '/var/lib/catena'].filter(dir => fs.existsSync(machine.path(dir)));
        const tables = (await lab.nft(lab.host, 'list', 'tables')).map(({ table }) => table.name);
        expect([...own, ...tables.filter((name: string) => name.startsWith('catena'))]).toEqual([]);
        for (const [n, pod] of pods.entries()) {
          const container = machine.netnsOf(pod.pid);
          expect(
            await findUnreachable(lab, { container, outside, ports: portsOf(n), families: ['v4', 'v6'] }),
          ).toEqual([]);
        }

        await layReference(machine);
        for (const { id } of pods) await cri.stopPod(id);
        for (const { id } of pods) await cri.removePod(id);
        cri.close();
        expect(await leftOf(machine)).toEqual([]);
      });
    });

    test('are handed over to the executables that uninstall restores', async () => {
      await withContainerd([PODS], async ({ machine, containerd }) => {
        await machine.ok(['umount', '/opt/cni/bin']);
        await layReference(machine);
        await machine.ok([CATENA, 'install', '--force']);
        const cri = containerd.cri();
        const pods: Pod[] = [];
        for (const n of [0, 1]) pods.push(await cri.runPod({ name: `pod-${n}`, ports: portsOf(n) }));

        expect((await catena(machine, 'uninstall')).exitCode).toBe(1);
        const planned = await catena(machine, 'uninstall', '--hand-over', '--dry-run');
        expect([planned.exitCode, planned.stdout]).toEqual([0, expect.stringContaining('2 pending')]);
        const gone = await catena(machine, 'uninstall', '--hand-over');
        expect([gone.exitCode, gone.stderr]).toEqual([0, '']);
        // Of the loopback interfaces, too, which the reference deletes as they are.
        const notes = fs.globSync(machine.path('/run/catena/generations/*/*'));
        expect(notes).toEqual([]);
        expect(fs.readdirSync(machine.path('/opt/cni/bin')).sort()).toEqual([...TYPES].sort());

        for (const { id } of pods) await cri.stopPod(id);
        for (const { id } of pods) await cri.removePod(id);
        cri.close();
        expect(await leftOf(machine)).toEqual([]);
      });
    });

    test('can still be deleted when the reference is already installed and its DEL has failed', async () => {
      await withContainerd([PODS], async ({ machine, containerd }) => {
        await machine.ok(['umount', '/opt/cni/bin']);
        await machine.ok([CATENA, 'install']);
        const cri = containerd.cri();
        const pods: Pod[] = [];
        for (const n of [0, 1]) pods.push(await cri.runPod({ name: `pod-${n}`, ports: portsOf(n) }));
        expect((await catena(machine, 'uninstall', '--force')).exitCode).toBe(0);
        await layReference(machine);
        const failed = await cri.stopPod(pods[0]?.id ?? '').catch(String);
        expect(failed).toContain('does not exist');

        const handed = await catena(machine, 'handover', '--to', '/opt/cni/bin');
        expect([handed.exitCode, handed.stderr]).toEqual([0, '']);
        for (const { id } of pods) await cri.stopPod(id);
        for (const { id } of pods) await cri.removePod(id);
        cri.close();
        expect(await leftOf(machine)).toEqual([]);
      });
    });
  },
  requires('ip', 'nft', 'iptables'),
  requiresContainerd(),
  requiresReference(...TYPES),
);
