// Does every invocation, however wrong, become the reply that the specification asks for?
import { afterAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as z from 'zod/mini';
import { PLUGINS } from '../../../plugins/registry.ts';
import { CniError } from '../../../src/cni/errors.ts';
import { decodeFor } from '../../../src/cni/json.ts';
import { PluginConfig } from '../../../src/cni/schemas.ts';
import { definePlugin, nothingToDo, type PluginDefinition } from '../../../src/plugin/define.ts';
import { serve } from '../../../src/plugin/serve.ts';

const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-serve-'));
afterAll(() => fs.rmSync(dir, { recursive: true }));

const ENV = {
  CATENA_RUN_DIR: dir,
  CNI_COMMAND: 'ADD',
  CNI_CONTAINERID: 'c1',
  CNI_NETNS: '/n',
  CNI_IFNAME: 'eth0',
  CNI_PATH: '/bin',
};
const CONF = { cniVersion: '1.1.0', name: 'net', type: 'sample' };

function sample(more: Partial<PluginDefinition> = {}): PluginDefinition {
  const verbs = { check: nothingToDo('sample'), del: nothingToDo('sample'), gc: nothingToDo('sample') };
  return definePlugin({
    name: 'sample',
    config: z.extend(PluginConfig, { size: z._default(z.int(), 1) }),
    netns: 'unused',
    add: () => ({ ips: [{ address: '10.0.0.2/24' }] }),
    status: nothingToDo('sample'),
    ...verbs,
    ...more,
  }) as PluginDefinition;
}

async function call(
  { env = {}, conf = CONF }: { env?: Record<string, string | undefined>; conf?: object | string },
  definition = sample(),
) {
  const text = typeof conf === 'string' ? conf : JSON.stringify(conf);
  const { exitCode, stdout } = await serve(definition, { env: { ...ENV, ...env }, readStdin: () => text });
  return { exitCode, reply: stdout === '' ? undefined : JSON.parse(stdout), stdout };
}

describe('serve() results', () => {
  test('ADD prints the result in the version of the configuration, indented by four', async () => {
    const { exitCode, stdout } = await call({});
    expect(exitCode).toBe(0);
    expect(stdout).toBe(
      '{\n    "cniVersion": "1.1.0",\n    "ips": [\n        {\n            "address": "10.0.0.2/24"\n        }\n    ]\n}',
    );
  });

  test('ADD converts the result for older versions', async () => {
    const { reply } = await call({ conf: { ...CONF, cniVersion: '0.4.0' } });
    expect(reply).toEqual({ cniVersion: '0.4.0', ips: [{ version: '4', address: '10.0.0.2/24' }], dns: {} });
  });

  test.each(['CHECK', 'DEL', 'GC', 'STATUS'])('%s prints nothing', async command => {
    expect(await call({ env: { CNI_COMMAND: command } })).toMatchObject({ exitCode: 0, stdout: '' });
  });

  test.each([
    ['that is missing', '', '1.1.0'],
    ['that is damaged', '{', '1.1.0'],
    ['of a version that is not supported', '{"cniVersion":"0.3.1"}', '1.1.0'],
    ['of a supported version', '{"cniVersion":"0.4.0"}', '0.4.0'],
  ])('VERSION answers a request %s', async (_, request, cniVersion) => {
    const { exitCode, stdout } = await serve(sample({ since: '0.4.0' }), {
      env: { CNI_COMMAND: 'VERSION' },
      readStdin: () => request,
    });
    expect([exitCode, stdout]).toEqual([
      0,
      `{"cniVersion":"${cniVersion}","supportedVersions":["0.4.0","1.0.0","1.1.0"]}\n`,
    ]);
  });

  test('keys match in any letter case, as in Go, and null counts as absent', async () => {
    const seen: unknown[] = [];
    const definition = sample({
      add(one) {
        seen.push((one.conf as { size: number }).size);
        return {};
      },
    });
    await call({ conf: { CNIVERSION: '1.1.0', Name: 'net', Type: 'sample', SIZE: 7 } }, definition);
    await call({ conf: { ...CONF, size: null } }, definition);
    expect(seen).toEqual([7, 1]);
  });
});

describe('serve() bad input', () => {
  test.each([
    ['an unknown command', { env: { CNI_COMMAND: 'add' } }, 4, 'unknown CNI_COMMAND: add'],
    ['no command', { env: { CNI_COMMAND: '' } }, 4, 'required env variables [CNI_COMMAND] missing'],
    [
      'missing variables, all at once',
      { env: { CNI_CONTAINERID: '', CNI_NETNS: undefined } },
      4,
      'required env variables [CNI_CONTAINERID,CNI_NETNS] missing',
    ],
    ['a path in the container id', { env: { CNI_CONTAINERID: '../etc' } }, 4, 'invalid CNI_CONTAINERID'],
    ['a path in the interface name', { env: { CNI_IFNAME: 'a/b' } }, 4, 'invalid CNI_IFNAME'],
    ['a long interface name', { env: { CNI_IFNAME: 'sixteen-bytes-xx' } }, 4, 'longer than 15 bytes'],
    ['broken JSON', { conf: '{"name": ' }, 6, 'Cannot decode network configuration on standard input'],
    ['an array', { conf: '[]' }, 6, 'expected a JSON object, found an array'],
    ['nothing', { conf: '' }, 6, 'Cannot decode network configuration'],
    ['no network name', { conf: { ...CONF, name: undefined } }, 7, 'missing network name'],
    [
      'a path in the network name',
      { conf: { ...CONF, name: '../x' } },
      7,
      'invalid characters found in network name',
    ],
    ['an unknown version', { conf: { ...CONF, cniVersion: '9.9.9' } }, 1, 'incompatible CNI versions'],
    ['a version that is no text', { conf: { ...CONF, cniVersion: 1 } }, 6, 'Cannot read "cniVersion"'],
    ['a value of the wrong type', { conf: { ...CONF, size: '7' } }, 7, '"size" must be of type'],
    [
      'a prevResult that is none',
      { conf: { ...CONF, prevResult: 'x' } },
      7,
      '"prevResult" must be of type object',
    ],
    [
      'CHECK before 0.4.0',
      { env: { CNI_COMMAND: 'CHECK' }, conf: { ...CONF, cniVersion: '0.3.1' } },
      1,
      'config version does not allow CHECK',
    ],
    [
      'GC before 1.1.0',
      { env: { CNI_COMMAND: 'GC' }, conf: { ...CONF, cniVersion: '1.0.0' } },
      1,
      'does not allow GC',
    ],
  ] as [string, Parameters<typeof call>[0], number, string][])(
    'refuses %s',
    async (_what, input, code, words) => {
      const { exitCode, reply } = await call(input);
      expect(exitCode).toBe(1);
      expect(reply).toMatchObject({ code, msg: expect.stringContaining(words) });
    },
  );

  test('reads CNI_ARGS when a plugin asks for them, and only then refuses invalid pairs', async () => {
    const seen: unknown[] = [];
    const curious = sample({
      add({ args }) {
        seen.push(args);
        return {};
      },
    });
    for (const CNI_ARGS of ['none', 'A=b;', ';', 'A=b=c', 'a=b;c']) {
      for (const CNI_COMMAND of ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS']) {
        expect(await call({ env: { CNI_ARGS, CNI_COMMAND } })).toMatchObject({ exitCode: 0 });
      }
      expect(await call({ env: { CNI_ARGS } }, curious)).toMatchObject({
        exitCode: 1,
        reply: { code: 4, msg: expect.stringContaining('invalid pair') },
      });
    }
    await call({ env: { CNI_ARGS: 'A=b;C=' } }, curious);
    expect(seen).toEqual([
      [
        ['A', 'b'],
        ['C', ''],
      ],
    ]);
  });

  test('accepts a configuration without a type', async () => {
    for (const type of [undefined, '', null]) {
      for (const CNI_COMMAND of ['ADD', 'CHECK', 'DEL', 'GC', 'STATUS']) {
        const conf = { ...CONF, type };
        expect(await call({ env: { CNI_COMMAND }, conf })).toMatchObject({ exitCode: 0 });
      }
    }
  });

  test('works with what is valid of a configuration on DEL, and on no other verb', async () => {
    const seen: unknown[] = [];
    const curious = sample({ del: ({ conf, request }) => void seen.push(conf, request) });
    const conf = { ...CONF, size: '7', other: 1 };
    expect(await call({ env: { CNI_COMMAND: 'DEL' }, conf }, curious)).toMatchObject({ exitCode: 0 });
    expect(seen).toEqual([{ ...CONF, size: 1, other: 1 }, conf]);
    for (const CNI_COMMAND of ['ADD', 'CHECK', 'GC', 'STATUS'])
      expect((await call({ env: { CNI_COMMAND }, conf }, curious)).reply).toMatchObject({ code: 7 });
  });

  test.each(Object.entries(PLUGINS))('so does %s, whatever is wrong', async (_, { load }) => {
    const { config } = await load();
    const { shape } = config as z.ZodMiniObject;
    const wrong = Object.fromEntries(
      Object.keys(shape).map(key => [key, key === 'ipam' ? { dataDir: [] } : [[]]]),
    );
    expect(decodeFor('DEL', config, wrong, 'it').problems.length).toBeGreaterThan(0);
  });

  test('ignores an unreadable prevResult on DEL, and on no other verb', async () => {
    const seen: unknown[] = [];
    const curious = sample({
      del: ({ prevResult, request }) => void seen.push(prevResult, request.prevResult),
    });
    const broken = ['x', [], { cniVersion: '9.9.9' }, { ips: [{ address: 'nowhere' }] }];
    for (const prevResult of broken) {
      const conf = { ...CONF, prevResult };
      expect(await call({ env: { CNI_COMMAND: 'DEL' }, conf }, curious)).toMatchObject({ exitCode: 0 });
      expect(await call({ env: { CNI_COMMAND: 'CHECK' }, conf })).toMatchObject({ exitCode: 1 });
    }
    expect(seen).toEqual(broken.flatMap(() => [undefined, null]));
  });

  test('names the supported versions', async () => {
    const { reply } = await call({ conf: { ...CONF, cniVersion: '0.2.0' } }, sample({ since: '1.0.0' }));
    expect(reply).toEqual({
      cniVersion: '0.2.0',
      code: 1,
      msg: 'incompatible CNI versions',
      details: 'config is "0.2.0", plugin supports ["1.0.0" "1.1.0"]',
    });
  });
});

describe('serve() failures', () => {
  test('an error of the plugin keeps its code through every wrapping, and the details have the wrapping', async () => {
    const inner = new CniError(11, 'range is busy', { details: 'held by 17' });
    const definition = sample({
      add() {
        throw new Error('Cannot attach', { cause: inner });
      },
    });
    expect((await call({}, definition)).reply).toMatchObject({
      code: 11,
      msg: 'range is busy',
      details: 'held by 17; Cannot attach: range is busy',
    });
  });

  test('anything else becomes code 999', async () => {
    const definition = sample({
      add() {
        throw new TypeError('oops');
      },
    });
    expect((await call({}, definition)).reply).toMatchObject({ code: 999, msg: 'oops' });
  });

  test.each([undefined, null, 'text', []])(
    'an ADD that returns %p fails, and undoes its steps',
    async value => {
      const undone: string[] = [];
      const add: PluginDefinition['add'] = one => {
        one.onFailure('undo', () => void undone.push('it'));
        return value as never;
      };
      const msg = `Cannot use what add() of plugin "sample" returned: expected a result, found ${JSON.stringify(value)}`;
      expect([(await call({}, sample({ add }))).reply, undone]).toMatchObject([{ code: 999, msg }, ['it']]);
    },
  );

  test('a bug of the plugin prints its stack to standard error, an error thrown on purpose does not', async () => {
    const written = async (thrown: Error) => {
      const definition = sample({
        add() {
          throw thrown;
        },
      });
      let text = '';
      const { log } = await serve(definition, { env: ENV, readStdin: () => JSON.stringify(CONF) });
      await log.flush(part => {
        text += part;
      });
      return text;
    };
    expect(await written(new RangeError('index out of range'))).toContain('serve.test.ts');
    expect(await written(new Error('Cannot confirm MTU'))).toBe('');
    expect(await written(new CniError(7, 'no'))).toBe('');
  });

  test('a missing delegate has code 999, too, since 0 would read as success', async () => {
    const definition = sample({
      add() {
        throw new CniError(0, 'Cannot find plugin "x"');
      },
    });
    expect((await call({}, definition)).reply).toMatchObject({ code: 999, msg: 'Cannot find plugin "x"' });
  });

  test('a failed ADD undoes its steps in reverse order, and keeps the first error', async () => {
    const undone: string[] = [];
    const definition = sample({
      add(one) {
        one.onFailure('undo one', () => void undone.push('one'));
        one.onFailure('undo two', () => {
          undone.push('two');
          throw new Error('stuck');
        });
        throw new CniError(100, 'no');
      },
    });
    const { reply } = await call({}, definition);
    expect(undone).toEqual(['two', 'one']);
    expect(reply).toMatchObject({
      code: 100,
      msg: 'no',
      details: expect.stringContaining('Cannot undo two: stuck'),
    });
  });

  test('a result that the version cannot express fails the ADD', async () => {
    const undone: string[] = [];
    const definition = sample({
      add(one) {
        one.onFailure('undo', () => void undone.push('undone'));
        return { interfaces: [{ name: 'eth0' }] };
      },
    });
    const { reply } = await call({ conf: { ...CONF, cniVersion: '0.2.0' } }, definition);
    expect(reply).toMatchObject({ code: 7, msg: expect.stringContaining('no valid IP addresses') });
    expect(undone).toEqual(['undone']);
  });
});

describe('serve() under CATENA_HANDOVER', () => {
  const handing = (seen: string[]) =>
    sample({
      netns: 'required',
      check: () => void seen.push('check'),
      del: () => void seen.push('del'),
      handOver: (_call, mode) => {
        seen.push(mode);
        return ['a rule'];
      },
    });

  test.each(['look', 'do'])(
    '%s runs handOver in place of CHECK, without a namespace and for every version',
    async mode => {
      const seen: string[] = [];
      const env = { CNI_COMMAND: 'CHECK', CNI_NETNS: '', CATENA_HANDOVER: mode };
      const { exitCode, reply } = await call({ env, conf: { ...CONF, cniVersion: '0.2.0' } }, handing(seen));
      expect([exitCode, reply, seen]).toEqual([0, { handedOver: ['a rule'] }, [mode]]);
    },
  );

  test('a plugin that has nothing to hand over says so', async () => {
    const { reply } = await call({ env: { CNI_COMMAND: 'CHECK', CATENA_HANDOVER: 'do' } });
    expect(reply).toEqual({ handedOver: [] });
  });

  test('other verbs and other values keep their meaning', async () => {
    const seen: string[] = [];
    await call({ env: { CNI_COMMAND: 'DEL', CATENA_HANDOVER: 'do' } }, handing(seen));
    expect(seen).toEqual(['del']);
    const env = { CNI_COMMAND: 'CHECK', CNI_NETNS: '', CATENA_HANDOVER: 'yes' };
    expect((await call({ env }, handing(seen))).reply.msg).toContain('CNI_NETNS');
  });
});
