import { expect, test } from 'bun:test';
import { faultIn } from '../../src/lab/call.ts';
import { failInTurn } from '../helpers/fail-in-turn.ts';
import { type Container, type Lab, useLabs } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';
import { LATEST_SPEC_VERSION } from '../helpers/spec-versions.ts';

describeRoot('loopback', () => {
  const createLab = useLabs();

  async function isUp(lab: Lab, container: Container): Promise<boolean> {
    const [lo] = await lab.ip(container, 'link', 'show', 'lo');
    return lo?.flags.includes('UP');
  }

  const confOf = (cniVersion: string = LATEST_SPEC_VERSION) => ({
    cniVersion,
    name: 'loop',
    type: 'loopback',
  });

  test('ADD brings lo up and reports it, DEL leaves it to its namespace', async () => {
    const lab = await createLab();
    const container = await lab.container();
    const call = { conf: confOf(), container, ifname: 'whatever' };
    const { result } = await lab.plugin('loopback', { command: 'ADD', ...call });
    expect(await isUp(lab, container)).toBe(true);
    expect(result).toEqual({
      cniVersion: LATEST_SPEC_VERSION,
      interfaces: [{ name: 'lo', mac: '00:00:00:00:00:00', sandbox: container.path }],
      ips: [
        { address: '127.0.0.1/8', interface: 0 },
        { address: '::1/128', interface: 0 },
      ],
    });
    const check = () => lab.plugin('loopback', { command: 'CHECK', ...call, prevResult: result });
    expect((await check()).exitCode).toBe(0);
    await lab.run(container, ['ip', 'link', 'set', 'lo', 'down']);
    expect((await check()).error).toMatchObject({
      code: 999,
      msg: expect.stringContaining('it is down'),
    });
    expect((await lab.plugin('loopback', { command: 'ADD', ...call })).result).toEqual(result);
    for (const command of ['GC', 'STATUS']) {
      expect(await lab.plugin('loopback', { command, conf: confOf() })).toMatchObject({
        exitCode: 0,
        stdout: '',
      });
    }
    for (let i = 0; i < 2; i++) {
      expect(await lab.plugin('loopback', { command: 'DEL', ...call })).toMatchObject({
        exitCode: 0,
        stdout: '',
      });
      expect(await isUp(lab, container)).toBe(true);
    }
  });

  test('ADD that fails leaves lo down', async () => {
    const lab = await createLab();
    const container = await lab.container();
    await failInTurn(async request => {
      const env = { CATENA_FAULT: `kernel:${request}` };
      const reply = await lab.plugin('loopback', { command: 'ADD', conf: confOf(), container, env });
      const what = faultIn(reply.stderr)?.what;
      if (what !== undefined) expect([reply.exitCode, await isUp(lab, container)]).toEqual([1, false]);
      return what;
    });
    expect(await isUp(lab, container)).toBe(true);
  });

  test('a late DEL leaves the loopback of the container alone that has the path now', async () => {
    const lab = await createLab();
    const [first, second] = [await lab.container(), await lab.container()];
    await lab.plugin('loopback', { command: 'ADD', conf: confOf(), container: first });
    await lab.plugin('loopback', { command: 'ADD', conf: confOf(), container: second });
    const late = { ...first, path: second.path };
    expect((await lab.plugin('loopback', { command: 'DEL', conf: confOf(), container: late })).exitCode).toBe(
      0,
    );
    expect(await isUp(lab, second)).toBe(true);
  });

  for (const version of ['0.1.0', '0.2.0']) {
    test(`[${version}] ADD prints the result in the format of the version`, async () => {
      const lab = await createLab();
      const container = await lab.container();
      const { result } = await lab.plugin('loopback', { command: 'ADD', conf: confOf(version), container });
      expect(result).toEqual({
        cniVersion: version,
        ip4: { ip: '127.0.0.1/8' },
        ip6: { ip: '::1/128' },
        dns: {},
      });
    });
  }

  test('ADD returns the result of earlier plugins', async () => {
    const lab = await createLab();
    const container = await lab.container();
    const prevResult = {
      cniVersion: LATEST_SPEC_VERSION,
      interfaces: [{ name: 'eth0', mac: '02:00:00:00:00:01', sandbox: container.path }],
      ips: [{ address: '10.0.0.2/24', interface: 0 }],
    };
    const reply = await lab.plugin('loopback', { command: 'ADD', conf: confOf(), container, prevResult });
    expect(reply.result).toEqual(prevResult);
    expect(await isUp(lab, container)).toBe(true);
  });

  test('ADD ignores other addresses on lo', async () => {
    const lab = await createLab();
    const container = await lab.container();
    await lab.run(container, ['ip', 'addr', 'add', '192.0.2.1/32', 'dev', 'lo']);
    const { result } = await lab.plugin('loopback', { command: 'ADD', conf: confOf(), container });
    expect(result.ips.map((ip: { address: string }) => ip.address)).toEqual(['127.0.0.1/8', '::1/128']);
  });

  test('DEL succeeds with a namespace that is missing, empty or invalid', async () => {
    const lab = await createLab();
    const container = await lab.container();
    await lab.remove(container);
    const del = (path: string | undefined) =>
      lab.plugin('loopback', { command: 'DEL', conf: confOf(), container, env: { CNI_NETNS: path } });
    for (const path of [container.path, '', undefined, '/etc/hostname'])
      expect((await del(path)).exitCode).toBe(0);
    const add = await lab.plugin('loopback', { command: 'ADD', conf: confOf(), container });
    expect(add.error).toMatchObject({ code: 8, msg: expect.stringContaining(container.path) });
  });

  test('ADD refuses the namespace it runs in before changing it', async () => {
    const lab = await createLab();
    const container = { ...lab.host, id: 'host' };
    await lab.run(lab.host, ['ip', 'link', 'set', 'lo', 'down']);
    const { error } = await lab.plugin('loopback', { command: 'ADD', conf: confOf(), container });
    expect(error?.code).toBe(8);
    expect(await isUp(lab, container)).toBe(false);
  });
});
