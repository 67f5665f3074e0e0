// Does a DEL wait for the call of another container, which hangs in a third-party IPAM plugin?
import { expect, test } from 'bun:test';
import { mkdirSync, writeFileSync } from 'node:fs';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { type Container, type Lab, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { bridgeOf, leasesIn, startPlugin } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';
import { until } from '../helpers/until.ts';

/** Far more than a DEL takes, and far less than the IPAM plugin. */
const timeoutMs = 20_000;

describeRoot('a DEL beside calls that hang in a third-party IPAM plugin', () => {
  const makeLab = useLabs();

  test.each([1, 4])('succeeds at once, and when their clients are killed: %d workers', async workers => {
    const lab = await makeLab();
    const conf = bridgeOf(lab);
    const { hang, cniPath, begun } = hangingIpam(lab);
    await startDaemon(lab, '--workers', String(workers));
    const containers: Container[] = [];
    for (let i = 0; i < 6; i++) {
      const container = await lab.container();
      containers.push(container);
      expect(await lab.plugin('bridge', { command: 'ADD', conf, container })).toMatchObject({ exitCode: 0 });
    }
    const hanging = [];
    const outcomes = [];
    for (const [i, container] of containers.entries()) {
      const other = await lab.container();
      const deleting = lab.plugin('bridge', { command: 'DEL', conf, container, timeoutMs });
      // It comes while the kernel still frees the device of the other.
      await until(async () => (await lab.ip(container, 'link', 'show', 'type', 'veth')).length === 0);
      const adding = startPlugin(lab, 'bridge', { command: 'ADD', conf: hang, container: other, cniPath });
      hanging.push(adding);
      // Every other client gives up in the middle: the worker that serves it ends.
      if (i % 2 === 0) {
        await until(() => begun() > i, { withinMs: timeoutMs });
        adding.kill('SIGKILL');
      }
      const { exitCode, stdout, stderr } = await deleting;
      outcomes.push({ exitCode, stdout, stderr });
    }
    expect(outcomes).toEqual(containers.map(() => ({ exitCode: 0, stdout: '', stderr: '' })));
    expect(leasesIn(lab)).toEqual([]);
    for (const one of hanging) one.kill('SIGKILL');
  });

  test('succeeds for the runner as well, whose plugins are one request', async () => {
    const lab = await makeLab();
    const { hang, cniPath, begun } = hangingIpam(lab);
    const chain = writeChain(lab, { ...fullChain(lab, { rate: 80_000_000 }), name: 'other' });
    await startDaemon(lab, '--workers', '1');
    const hanging = [];
    for (let i = 0; i < 3; i++) {
      const [container, other] = [await lab.container(), await lab.container()];
      await chain.add(container);
      const deleting = chain.run('del', container);
      await until(async () => (await lab.ip(container, 'link', 'show', 'type', 'veth')).length === 0);
      hanging.push(startPlugin(lab, 'bridge', { command: 'ADD', conf: hang, container: other, cniPath }));
      await until(() => begun() > i, { withinMs: timeoutMs });
      expect(await deleting).toMatchObject({ exitCode: 0, stderr: '' });
    }
    expect(await chain.leases()).toEqual([]);
    for (const one of hanging) one.kill('SIGKILL');
  });
});

/** A bridge whose addresses come from a plugin that never answers, and how often that was called. */
function hangingIpam(lab: Lab): { hang: object; cniPath: string; begun: () => number } {
  const dir = `${lab.tmp}/foreign`;
  mkdirSync(dir);
  const calls = `${lab.tmp}/hanging`;
  writeFileSync(calls, '');
  writeFileSync(`${dir}/never`, `#!/bin/sh\necho begun >> ${calls}\nexec sleep 40\n`, { mode: 0o755 });
  const hang = { ...bridgeOf(lab), name: 'hanging', bridge: 'br1', ipam: { type: 'never' } };
  const begun = () => Bun.spawnSync(['grep', '-c', 'begun', calls]).stdout.toString().trim();
  return { hang, cniPath: `${dir}:${BIN_DIR}`, begun: () => Number(begun()) };
}
