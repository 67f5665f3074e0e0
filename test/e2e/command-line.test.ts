// Does the command say what it made of words that do not mean what they seem to?
import { expect, test } from 'bun:test';
import fs from 'node:fs';
import { CATENA } from '../helpers/catena.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';

describeRoot('catena', () => {
  const makeLab = useLabs();

  function setUp(lab: Lab) {
    const ipam = { type: 'host-local', subnet: '10.88.0.0/24', dataDir: `${lab.tmp}/leases` };
    const bridge = { type: 'bridge', bridge: 'br0', isGateway: true, ipam };
    const portmap = { type: 'portmap', capabilities: { portMappings: true } };
    fs.mkdirSync(`${lab.tmp}/net.d`);
    const list = { cniVersion: '1.0.0', name: 'podnet', plugins: [bridge, portmap] };
    fs.writeFileSync(`${lab.tmp}/net.d/podnet.conflist`, JSON.stringify(list));
    const env = { ...directories(lab.tmp), NETCONFPATH: `${lab.tmp}/net.d`, CNI_PATH: BIN_DIR };
    return (...args: string[]) => lab.run(lab.host, [CATENA, ...args], { env, cwd: lab.tmp });
  }

  test('takes the bare name of a namespace of "ip netns", also for DEL when it is gone', async () => {
    const lab = await makeLab();
    const call = setUp(lab);
    const container = await lab.container();
    const added = await call('add', 'podnet', container.name);
    expect(added).toMatchObject({ exitCode: 0, stderr: '' });
    expect(JSON.parse(added.stdout).interfaces.at(-1).sandbox).toBe(`/run/netns/${container.name}`);
    expect(await call('check', 'podnet', container.name)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await call('del', 'podnet', container.name)).toMatchObject({ exitCode: 0, stderr: '' });
    expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toEqual([]);
  });

  test('warns of a capability that no plugin declares, and attaches the container', async () => {
    const lab = await makeLab();
    const call = setUp(lab);
    const { path } = await lab.container();
    const added = await call('add', 'podnet', path, '--cap', '{"portMapping":[]}');
    expect(added).toMatchObject({
      exitCode: 0,
      stderr:
        'catena: warning: Cannot pass capability "portMapping": no plugin of network "podnet" declares it; did you mean "portMappings"?\n',
    });
  });

  test('reports which --valid of gc has no record, before it deletes the others', async () => {
    const lab = await makeLab();
    const call = setUp(lab);
    const { path } = await lab.container();
    await call('add', 'podnet', path, '--container-id', 'typo');
    expect(await call('gc', 'podnet', '--valid', 'tpyo/eth0')).toMatchObject({
      exitCode: 0,
      stderr:
        'catena: warning: Cannot find "tpyo/eth0" of --valid among the recorded attachments of network "podnet"\n',
    });
  });

  test('repair shows the error of CHECK for each plugin that it repaired', async () => {
    const lab = await makeLab();
    const call = setUp(lab);
    const { path } = await lab.container();
    expect(await call('add', 'podnet', path)).toMatchObject({ exitCode: 0 });
    await lab.ip(lab.host, 'address', 'flush', 'dev', 'br0');
    const { exitCode, stdout } = await call('repair');
    expect(exitCode).toBe(0);
    expect(stdout).toMatch(/^ {2}bridge mended; CHECK had reported: Cannot confirm /m);
  });
});
