// Does exactly what was reported stand, when several processes work on one attachment at the same moment?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { existsSync, readdirSync } from 'node:fs';
import { type Chain, fullChain, writeChain } from '../helpers/chain.ts';
import { deadline } from '../helpers/deadline.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import { describeRoot } from '../helpers/skip.ts';

setDefaultTimeout(deadline(180_000));

const ROUNDS = IS_SAMPLE ? 16 : 40;

/** A chain that is quick: what is tried is the moment at which each begins. */
function quickChain(lab: Lab): Chain {
  const { plugins, ...head } = fullChain(lab);
  return writeChain(lab, { ...head, plugins: plugins.slice(0, 1) });
}

/** What there is of an attachment: its interface, its leases, its records. */
async function tracesOf(lab: Lab, { id, path, name }: Container): Promise<string[]> {
  const inside = await lab.run({ path, name }, ['ip', 'link', 'show', 'dev', 'eth0']);
  const leases = `${lab.tmp}/leases/podnet`;
  const held = existsSync(leases) ? readdirSync(leases).filter(name => /^[0-9a-f]+[.:]/.test(name)) : [];
  const texts = await Promise.all(held.map(address => Bun.file(`${leases}/${address}`).text()));
  return [
    ...(inside.exitCode === 0 ? ['interface'] : []),
    ...texts.filter(text => text === `${id}\r\neth0`).map(() => 'lease'),
    ...(existsSync(`${lab.tmp}/state/unsettled/podnet/${id}:eth0`) ? ['note'] : []),
    ...(existsSync(`${lab.tmp}/cni/results/podnet-${id}-eth0`) ? ['cached result'] : []),
  ];
}

const WHOLE = ['interface', 'lease', 'lease', 'cached result'];

describeRoot('two concurrent processes', () => {
  test('that add one attachment: one succeeds, and its attachment is complete', async () => {
    await withHost(async lab => {
      const chain = quickChain(lab);
      const wrong: unknown[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        const container = await lab.container();
        const ends = await Promise.all([chain.run('add', container), chain.run('add', container)]);
        const codes = ends.map(({ exitCode }) => exitCode).sort();
        const traces = await tracesOf(lab, container);
        if (codes.join() !== '0,1' || traces.join() !== WHOLE.join()) wrong.push({ codes, traces });
        await chain.run('del', container);
        const left = await tracesOf(lab, container);
        if (left.length) wrong.push({ left });
        await lab.remove(container);
      }
      expect(wrong).toEqual([]);
    });
  });

  test('that add and delete one attachment leave all of it, or nothing', async () => {
    await withHost(async lab => {
      const chain = quickChain(lab);
      const wrong: unknown[] = [];
      for (let round = 0; round < ROUNDS / 2; round++) {
        const container = await lab.container();
        const [added, deleted] = await Promise.all([
          chain.run('add', container),
          Bun.sleep(round % 8).then(() => chain.run('del', container)),
        ]);
        const traces = await tracesOf(lab, container);
        const isWhole = traces.join() === WHOLE.join() && added.exitCode === 0;
        if (!(isWhole || traces.length === 0) || deleted.exitCode !== 0)
          wrong.push({ traces, added: added.exitCode, deleted: deleted.stderr });
        await chain.run('del', container);
        await lab.remove(container);
      }
      expect(wrong).toEqual([]);
    });
  });

  test('that add one pod by the delegate runner: one succeeds, and all its networks are attached', async () => {
    await withHost(async lab => {
      const { plugins, ...head } = fullChain(lab);
      const delegate = { ...head, plugins: plugins.slice(0, 1) };
      const conf = {
        cniVersion: '1.1.0',
        name: 'pods',
        type: 'catena',
        binDir: BIN_DIR,
        delegates: [delegate],
      };
      const wrong: unknown[] = [];
      for (let round = 0; round < ROUNDS / 2; round++) {
        const container = await lab.container();
        const add = () => lab.plugin('catena', { command: 'ADD', conf, container });
        const codes = (await Promise.all([add(), add()])).map(({ exitCode }) => exitCode).sort();
        const files = ['state/pods/results/pods', 'cni/catena/results/podnet'];
        const records = files.filter(name => existsSync(`${lab.tmp}/${name}-${container.id}-eth0`));
        const traces = (await tracesOf(lab, container)).filter(one => ['interface', 'lease'].includes(one));
        if (codes.join() !== '0,1' || records.length !== 2 || traces.length !== 3)
          wrong.push({ codes, records, traces });
        const { exitCode } = await lab.plugin('catena', { command: 'DEL', conf, container });
        const left = await tracesOf(lab, container);
        if (exitCode !== 0 || left.length) wrong.push({ exitCode, left });
        await lab.remove(container);
      }
      expect(wrong).toEqual([]);
    });
  });
});
