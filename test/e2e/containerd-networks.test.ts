// Do containerd and our tool agree on which file of a directory is the network of pods?
import { expect, setDefaultTimeout, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { eventually, requiresContainerd, withContainerd } from '../helpers/containerd.ts';
import { deadline } from '../helpers/deadline.ts';
import type { Row } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { bridged, PODS } from '../helpers/pod-networks.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

// Many processes each, which a busy machine takes its time for.
setDefaultTimeout(deadline(180_000));

const file = (name: string, more: Row = {}) => JSON.stringify({ ...PODS, name, ...more });
const single = (name: string) => JSON.stringify({ cniVersion: '1.0.0', name, type: 'bridge' });
/** Contents of directories of configurations. */
const DIRECTORIES: Record<string, string>[] = [
  { 'b.conflist': file('b'), 'a.conf': single('a') },
  { 'b.conflist': file('b'), 'a.json': single('a') },
  { 'b.conflist': file('b'), 'a.conflist~': file('a'), 'a.conflist.bak': file('a'), a: file('a') },
  { 'b.conflist': file('b'), '.conflist': file('hidden') },
  { 'b.conflist': file('b'), 'a.conflist': '{' },
  { 'b.conflist': file('b'), 'a.conf': file('a') },
  { 'b.conflist': file('b'), 'a.conflist': file('a', { plugins: [] }) },
  { 'b.conflist': file('b'), 'B.conflist': file('B'), '10.conflist': file('10'), '9.conflist': file('9') },
  { 'a.conflist': file('a', { plugins: [{ type: 'missing-plugin' }] }) },
  {},
];
describeRoot(
  'pods of containerd',
  () => {
    test('get the network that is installed while containerd runs, and the old one after uninstall', async () => {
      const old = { cniVersion: '0.4.0', name: 'old', plugins: [bridged('old0', 24)] };
      await withContainerd([old], async ({ machine, containerd }) => {
        await machine.ok(['umount', '/opt/cni/bin']);
        const before = await machine.traces();
        const cri = containerd.cri();
        const untilNetworkIs = (name: string) =>
          eventually(`network "${name}"`, async () => {
            const { networks } = await cri.networkStatus();
            return networks[0] === name ? name : undefined;
          });
        await untilNetworkIs('old');
        const list = path.resolve(import.meta.dir, '../../conflists/bridge-full.conflist');
        await machine.ok([`${BIN_DIR}/catena`, 'install', list, '--as-default']);
        await untilNetworkIs('bridge-full');
        const web = await cri.runPod({ name: 'web' });
        expect(web.ips).toEqual(['10.22.0.2', 'fd00:22::2']);
        await cri.removePod(web.id);
        expect(await machine.settled(before)).toEqual(before);
        await machine.ok([`${BIN_DIR}/catena`, 'uninstall']);
        await untilNetworkIs('old');
        expect(fs.readdirSync(machine.path('/etc/cni/net.d'))).toEqual(['old.conflist']);
        cri.close();
      });
    });

    test('get the networks that `catena networks` lists', async () => {
      await withContainerd([PODS], async ({ machine, containerd }) => {
        const dir = machine.path('/etc/cni/net.d');
        for (const files of DIRECTORIES) {
          await containerd.kill();
          for (const name of fs.readdirSync(dir)) fs.rmSync(path.join(dir, name));
          for (const [name, text] of Object.entries(files)) machine.write(`/etc/cni/net.d/${name}`, text);
          await containerd.start();
          const cri = containerd.cri();
          const { networks } = await cri.networkStatus();
          cri.close();
          const { stdout } = await machine.run(['/opt/cni/bin/catena', 'networks', '--why', '--json']);
          const { runtimes } = JSON.parse(stdout);
          const told = runtimes.find(({ runtime }: Row) => runtime === 'containerd').files;
          const names = told.map((name: string) => JSON.parse(files[name] ?? '').name);
          expect([Object.keys(files), names]).toEqual([Object.keys(files), networks]);
        }
      });
    });
  },
  requires('ip', 'nft'),
  requiresContainerd(),
);
