import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import {
  explainConflict,
  findHighestCommon,
  listPluginVersions,
  pluginVersion,
  validateNetwork,
} from '../../../../src/chain/config/plugin-version.ts';
import { processSegments, type SegmentRunner } from '../../../../src/chain/run/segment.ts';
import { CniError } from '../../../../src/cni/errors.ts';
import { listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

/** Plugins that answer VERSION like this. */
const answering = (stdout: string, exitCode = 0): SegmentRunner =>
  processSegments(() => ({
    send: async () => ({ exitCode, stdout, stderr: '', durationMs: 1 }),
    discard() {},
  }));

describe('listPluginVersions()', () => {
  test('asks every plugin', async () => {
    const versions = await listPluginVersions(listOf('1.0.0', [{ type: 'noop' }]), chain.runtime);
    expect(versions).toEqual([
      { type: 'noop', supportedVersions: ['0.1.0', '0.2.0', '0.3.0', '0.3.1', '0.4.0', '1.0.0', '1.1.0'] },
    ]);
  });

  test.each([
    ['what it lists, be it odd', '{"cniVersion":"1.1.0","supportedVersions":["0.-42.0"]}', 0, ['0.-42.0']],
    ['0.1.0 and 0.2.0 for a bare 0.2.0', '{"cniVersion":"0.2.0"}', 0, ['0.1.0', '0.2.0']],
    ['0.1.0 for one that knows no VERSION', '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}', 1, ['0.1.0']],
  ])('reads %s', async (_, stdout, exitCode, expected) => {
    const runtime = { ...chain.runtime, segments: answering(stdout, exitCode) };
    const [versions] = await listPluginVersions(listOf('1.0.0', [{ type: 'noop' }]), runtime);
    expect(versions?.supportedVersions).toEqual(expected);
  });

  test.each(['', '{}', '{"cniVersion":"1.0.0"}', '{"supportedVersions":["1.0.0"]}'])(
    'refuses %j',
    async stdout => {
      const runtime = { ...chain.runtime, segments: answering(stdout) };
      await expect(listPluginVersions(listOf('1.0.0', [{ type: 'noop' }]), runtime)).rejects.toThrow(
        'Cannot read versions of plugin "noop"',
      );
    },
  );
});

describe('validateNetwork()', () => {
  test('returns the versions that the plugins support and the capabilities they declare', async () => {
    const list = listOf('1.0.0', [
      { type: 'noop', capabilities: { mac: true, ips: false } },
      { type: 'noop', capabilities: { mac: true, portMappings: true } },
    ]);
    const valid = await validateNetwork(list, chain.runtime);
    expect(valid).toMatchObject({ capabilities: ['mac', 'portMappings'], highestCommon: '1.1.0' });
    expect(valid.plugins.map(({ type }) => type)).toEqual(['noop', 'noop']);
  });

  test('reports every plugin that is missing or does not support the version', async () => {
    const runtime = { ...chain.runtime, segments: answering('{"cniVersion":"0.2.0"}') };
    const list = listOf('1.0.0', [{ type: 'noop' }, { type: 'missing' }]);
    await expect(validateNetwork(list, runtime)).rejects.toMatchObject({
      code: 1,
      message: expect.stringMatching(
        /^Cannot use network "testnet": .*it is not supported by "noop".*Cannot find plugin "missing"/,
      ),
    });
  });

  test('shows the matrix of versions and the highest common one', async () => {
    const versions: Record<string, string[]> = {
      noop: ['0.3.1', '0.4.0'],
      fail: ['0.4.0', '1.0.0', '9.0.0'],
    };
    const runtime = {
      ...chain.runtime,
      exec: ({ path }: { path: string }) => {
        const supportedVersions = versions[path.split('/').at(-1) ?? ''];
        return { stdout: JSON.stringify({ cniVersion: '1.0.0', supportedVersions }) };
      },
    };
    const list = listOf('1.0.0', [{ type: 'noop' }, { type: 'fail' }]);
    await expect(validateNetwork(list, runtime)).rejects.toMatchObject({
      code: 1,
      message: 'Cannot use network "testnet" with CNI version "1.0.0": it is not supported by "noop"',
      details:
        'noop 0.3.1 0.4.0, fail 0.4.0 1.0.0 9.0.0; the highest version that all plugins support is 0.4.0',
    });
    versions.fail = ['1.1.0'];
    await expect(validateNetwork(list, runtime)).rejects.toMatchObject({
      message: expect.stringContaining('"noop", "fail"'),
      details: 'noop 0.3.1 0.4.0, fail 1.1.0; no version is supported by all plugins',
    });
  });
});

test('pluginVersion() asks one plugin', async () => {
  expect((await pluginVersion('noop', chain.runtime)).supportedVersions).toContain('0.1.0');
  await expect(pluginVersion('missing', chain.runtime)).rejects.toThrow('Cannot find plugin "missing"');
});

test.each([
  [[], '1.1.0'],
  [[{ type: 'a', supportedVersions: ['0.-42.0', '1.0.0', '0.4.0'] }], '1.0.0'],
  [[{ type: 'a', supportedVersions: ['x'] }], undefined],
])('findHighestCommon() of %j', (plugins, expected) => {
  expect(findHighestCommon(plugins)).toBe(expected as never);
});

describe('explainConflict()', () => {
  const plugin = { network: 'testnet', type: 'noop', index: 0, verb: 'ADD' };
  const list = listOf('1.0.0', [{ type: 'noop' }, { type: 'missing' }]);

  test('adds the versions of those that answer to the error of a plugin that refused the version', async () => {
    const runtime = { ...chain.runtime, segments: answering('{"cniVersion":"0.2.0"}') };
    const error = new CniError(1, 'incompatible CNI versions', { details: 'as it said', plugin: plugin });
    expect(await explainConflict(error, list, runtime)).toMatchObject({
      code: 1,
      message: 'incompatible CNI versions',
      details: 'as it said; noop 0.1.0 0.2.0; the highest version that all plugins support is 0.2.0',
      plugin,
    });
  });

  test('asks no plugin about another error', async () => {
    const start = () => {
      throw new Error('started');
    };
    for (const error of [new CniError(2, 'x', { plugin: plugin }), new CniError(1, 'x'), new Error('x')]) {
      expect(await explainConflict(error, list, { ...chain.runtime, segments: processSegments(start) })).toBe(
        error,
      );
    }
  });
});
