// Does every call of a plugin leave the note of its attachment's generation, and GC use it?
import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { findGeneration, listGenerations } from '../../../src/attachments/generation.ts';
import { takeLock } from '../../../src/attachments/lock.ts';
import { PluginConfig } from '../../../src/cni/schemas.ts';
import { definePlugin, nothingToDo, type PluginDefinition } from '../../../src/plugin/define.ts';
import { serve } from '../../../src/plugin/serve.ts';
import { until } from '../../helpers/until.ts';

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-generation-'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

const ID = { network: 'podnet', containerId: 'c1', ifname: 'eth0' };
const RESULT = { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] };

function pluginWith(more: Partial<PluginDefinition> = {}): PluginDefinition {
  return definePlugin({
    name: 'sample',
    config: PluginConfig,
    netns: 'unused',
    add: () => ({ ips: [{ address: '10.0.0.2/24' }] }),
    check: nothingToDo('sample'),
    del: nothingToDo('sample'),
    gc: nothingToDo('sample'),
    status: nothingToDo('sample'),
    ...more,
  }) as PluginDefinition;
}

async function call(command: string, plugin = pluginWith(), more: object = {}, env: object = {}) {
  const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'sample', ...more };
  const own = {
    CATENA_RUN_DIR: dir,
    CNI_CONTAINERID: 'c1',
    CNI_NETNS: '/n',
    CNI_IFNAME: 'eth0',
    CNI_PATH: '/bin',
  };
  const reply = await serve(plugin, {
    env: { ...own, CNI_COMMAND: command, ...env },
    readStdin: () => JSON.stringify(conf),
  });
  let logged = '';
  await reply.log.flush(text => {
    logged += text;
  });
  return { ...reply, logged };
}

const tokenOf = () => findGeneration(dir, ID)?.token;

describe('ADD', () => {
  test('waits until the removal of an earlier attachment of the same name has ended', async () => {
    let added = false;
    const add = () => {
      added = true;
      return {};
    };
    const lock = takeLock({ stateDir: '/nowhere', env: { CATENA_RUN_DIR: dir } }, ID, 'remove');
    if ('holder' in lock) throw new Error('the attachment is held');
    const adding = call('ADD', pluginWith({ add }));
    // The removal sees that it has begun.
    await until(() => tokenOf() !== undefined);
    const token = tokenOf();
    await Bun.sleep(100);
    expect([added, tokenOf()]).toEqual([false, token]);
    // Its plugins remove the note, which another removal has to see.
    await call('DEL');
    lock.release();
    expect(await adding).toMatchObject({ exitCode: 0 });
    expect([added, tokenOf()]).toEqual([true, token]);
  });

  test('that is refused keeps the note of the existing attachment', async () => {
    await call('ADD');
    const before = tokenOf();
    const refuse = () => {
      throw new Error('eth0 already exists');
    };
    expect((await call('ADD', pluginWith({ add: refuse }))).exitCode).toBe(1);
    expect(tokenOf()).toBe(before as string);
  });

  test('by our runner is told from one by another runtime', async () => {
    await call('ADD', pluginWith(), {}, { CATENA_RUNNER: '1-2' });
    expect(findGeneration(dir, ID)?.isOurs).toBe(true);
    await call('ADD');
    expect(findGeneration(dir, ID)?.isOurs).toBe(false);
  });

  test('leaves its note before the plugin does anything, and later plugins keep it', async () => {
    let during: string | undefined;
    const add = () => {
      during = tokenOf();
      return {};
    };
    await call('ADD', pluginWith({ add }));
    expect(during).toBeString();
    await call('ADD', pluginWith(), { prevResult: RESULT });
    expect(tokenOf()).toBe(during as string);
    await call('ADD');
    expect(tokenOf()).not.toBe(during as string);
    await call('DEL');
    expect(tokenOf()).toBeUndefined();
  });

  test('leaves no note when it fails', async () => {
    const add = () => {
      throw new Error('no');
    };
    expect(await call('ADD', pluginWith({ add }))).toMatchObject({ exitCode: 1 });
    expect(tokenOf()).toBeUndefined();
  });

  test.each(['ADD', 'DEL', 'GC'])(
    '%s works when the run directory cannot be written, and says so to a debugger',
    async command => {
      const file = path.join(dir, 'file');
      fs.writeFileSync(file, '');
      process.env.CATENA_LOG_LEVEL = 'debug';
      const list = { 'cni.dev/valid-attachments': [] };
      const reply = await call(command, pluginWith(), list, { CATENA_RUN_DIR: file }).finally(() => {
        delete process.env.CATENA_LOG_LEVEL;
      });
      expect(reply.exitCode).toBe(0);
      if (command === 'ADD') expect(reply.logged).toContain('GC may miss it');
    },
  );

  test('of another plugin within its own is noted once', async () => {
    const seen: (string | undefined)[] = [];
    const inner = pluginWith({
      name: 'inner',
      add: () => {
        seen.push(tokenOf());
        return {};
      },
    });
    const outer = pluginWith({
      add: async own => {
        seen.push(tokenOf());
        return own.delegate('catena').add();
      },
    });
    const conf = { cniVersion: '1.1.0', name: 'podnet', type: 'sample' };
    // The plugin is found by its file, which is this very executable.
    fs.symlinkSync(process.execPath, path.join(dir, 'catena'));
    const env = {
      CATENA_RUN_DIR: dir,
      CNI_COMMAND: 'ADD',
      CNI_CONTAINERID: 'c1',
      CNI_NETNS: '/n',
      CNI_IFNAME: 'eth0',
    };
    const invocation = { env: { ...env, CNI_PATH: dir }, readStdin: () => JSON.stringify(conf) };
    expect((await serve(outer, invocation, async () => inner)).exitCode).toBe(0);
    expect(seen[0]).toBeString();
    expect(seen[1]).toBe(seen[0] as string);
  });
});

describe('GC', () => {
  const valid = (...ids: string[]) => ({
    'cni.dev/valid-attachments': ids.map(containerID => ({ containerID, ifname: 'eth0' })),
  });

  test('keeps listed attachments and those begun after it, and removes the notes of all others', async () => {
    for (const containerId of ['c1', 'c2'])
      await call('ADD', pluginWith(), {}, { CNI_CONTAINERID: containerId });
    let answers: unknown;
    const gc: PluginDefinition['gc'] = async ({ kept }) => {
      await call('ADD', pluginWith(), {}, { CNI_CONTAINERID: 'c3' });
      answers = ['c1', 'c2', 'c3'].map(containerId => kept?.has({ containerId, ifname: 'eth0' }));
    };
    expect(await call('GC', pluginWith({ gc }), valid('c2'))).toMatchObject({ exitCode: 0 });
    expect(answers).toEqual([false, true, true]);
    const left = listGenerations(dir, 'podnet').map(({ containerId }) => containerId);
    expect(left.sort()).toEqual(['c2', 'c3']);
  });

  test('keeps an attachment that was deleted and added again after it began', async () => {
    await call('ADD');
    let isKept: boolean | undefined;
    const gc: PluginDefinition['gc'] = async ({ kept }) => {
      await call('DEL');
      await call('ADD');
      isKept = kept?.has(ID);
    };
    await call('GC', pluginWith({ gc }), valid());
    expect(isKept).toBe(true);
  });

  test('keeps all that have a note when the snapshot of its runner is gone', async () => {
    await call('ADD');
    let isKept: boolean | undefined;
    const gc: PluginDefinition['gc'] = ({ kept }) => {
      isKept = kept?.has(ID);
    };
    await call('GC', pluginWith({ gc }), valid(), { CATENA_GC_SNAPSHOT: path.join(dir, 'gone') });
    expect(isKept).toBe(true);
    expect(fs.existsSync(path.join(dir, 'gc'))).toBe(false);
  });

  test('touches no note without a list', async () => {
    await call('ADD');
    await call('GC');
    expect(tokenOf()).toBeString();
  });

  test.each(['cni.dev/valid-attachments', 'cni.dev/attachments'])(
    'keeps what %s lists in any letter case, and refuses a list with anything else',
    async key => {
      await call('ADD');
      const listed = { containerId: 'c1', IfName: 'eth0' };
      expect(await call('GC', pluginWith(), { [key]: [listed] })).toMatchObject({ exitCode: 0 });
      expect(tokenOf()).toBeString();
      for (const wrong of [null, 'c1', {}, { ...listed, containerId: 1 }]) {
        const { exitCode, stdout } = await call('GC', pluginWith(), { [key]: [listed, wrong] });
        expect({ exitCode, code: JSON.parse(stdout).code }).toEqual({ exitCode: 1, code: 7 });
      }
    },
  );

  test('takes null for a list without entries: CRI-O sends that for a network without pods', async () => {
    await call('ADD');
    await call('GC', pluginWith(), { 'cni.dev/valid-attachments': null, 'cni.dev/attachments': null });
    expect(tokenOf()).toBeUndefined();
  });
});

test('DEL removes its note before it deletes anything, so that a repair knows that it has begun', async () => {
  await call('ADD');
  let during: string | undefined = 'not called';
  const del = () => {
    during = tokenOf();
    throw new Error('busy');
  };
  expect((await call('DEL', pluginWith({ del }))).exitCode).toBe(1);
  expect(during).toBeUndefined();
});

test('DEL leaves the note of an ADD that began while it ran', async () => {
  await call('ADD');
  const before = tokenOf();
  const del = async () => void (await call('ADD'));
  expect((await call('DEL', pluginWith({ del }))).exitCode).toBe(0);
  expect(tokenOf()).toBeString();
  expect(tokenOf()).not.toBe(before);
});
