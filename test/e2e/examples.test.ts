// Do the programs in examples/ do what they say?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { directories, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

const MAX_LINES = 40;

describeRoot('examples', () => {
  const createLab = useLabs();
  const example = (name: string) => path.join(ROOT, 'examples', name);

  test('are short enough to be read at once', () => {
    const lengths = fs
      .readdirSync(example('.'))
      .map(name => fs.readFileSync(example(name), 'utf8').split('\n').length);
    expect(lengths.filter(length => length > MAX_LINES)).toEqual([]);
  });

  test('runner.ts attaches a namespace, shows its address, and detaches it', async () => {
    const lab = await createLab();
    const container = await lab.container();
    const ipam = { type: 'host-local', subnet: '10.9.0.0/24', dataDir: `${lab.tmp}/leases` };
    const file = path.join(lab.tmp, 'net.conflist');
    const list = { cniVersion: '1.1.0', name: 'net', plugins: [{ type: 'ptp', ipam }] };
    fs.writeFileSync(file, JSON.stringify(list));
    const env = { ...directories(lab.tmp), CNI_PATH: BIN_DIR };
    const argv = [process.execPath, example('runner.ts'), file, container.path];
    const { exitCode, stdout, stderr } = await lab.run(lab.host, argv, { cwd: ROOT, env });
    expect({ exitCode, stdout }).toEqual({ exitCode: 0, stdout: '10.9.0.2/24 via 10.9.0.1\n' });
    expect(stderr.match(/^\w+/gm)).toEqual(['ADD', 'CHECK', 'DEL']);
    const devices = await lab.ip(container, 'link', 'show');
    expect(devices.map(({ ifname }) => ifname)).toEqual(['lo']);
  });

  test('plugin.ts accepts an allowed address, and refuses another one with the reason', async () => {
    const lab = await createLab();
    const container = await lab.container();
    const add = async (address: string) => {
      const prevResult = { cniVersion: '1.1.0', ips: [{ address }] };
      const conf = { cniVersion: '1.1.0', name: 'net', type: 'only-from', prefix: '10.22.', prevResult };
      const file = path.join(lab.tmp, 'request.json');
      fs.writeFileSync(file, JSON.stringify(conf));
      const env = {
        CNI_COMMAND: 'ADD',
        CNI_CONTAINERID: 'c1',
        CNI_NETNS: container.path,
        CNI_IFNAME: 'eth0',
        CNI_PATH: BIN_DIR,
      };
      const argv = ['sh', '-c', `exec "$0" "$1" < "$2"`, process.execPath, example('plugin.ts'), file];
      return lab.run(lab.host, argv, { cwd: ROOT, env });
    };
    expect(JSON.parse((await add('10.22.0.7/16')).stdout)).toMatchObject({
      ips: [{ address: '10.22.0.7/16' }],
    });
    expect(JSON.parse((await add('10.23.0.7/16')).stdout)).toMatchObject({
      code: 100,
      msg: 'Cannot allow address 10.23.0.7/16: it does not begin with "10.22."',
    });
  });

  test('watch-daemon.ts prints a request when it has ended', async () => {
    const lab = await createLab();
    const container = await lab.container();
    const chain = writeChain(lab, { cniVersion: '1.1.0', name: 'net', plugins: [{ type: 'loopback' }] });
    const daemon = await startDaemon(lab);
    await chain.add(container);
    const argv = [process.execPath, example('watch-daemon.ts'), daemon.socket, '1'];
    const { stdout } = await lab.run(lab.host, argv, { cwd: ROOT });
    expect(stdout).toMatch(/^ADD net \S+: loopback \d+\.\d ms\n$/);
    expect((await chain.run('del', container)).exitCode).toBe(0);
  });
});
