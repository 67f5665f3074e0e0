import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import type { StartPlugin } from '../../../src/chain/exec-plugin.ts';
import { listPluginVersions, validateNetwork } from '../../../src/chain/plugin-version.ts';
import { listOf, makeNoopChain, type NoopChain } from '../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

/** A link that answers VERSION like this. */
const answering = (stdout: string, exitCode = 0): StartPlugin => {
  return () => ({
    send: async () => ({ exitCode, stdout, stderr: '', durationMs: 1 }),
    discard() {},
  });
};

describe('listPluginVersions()', () => {
  test('asks every link', async () => {
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
    const runtime = { ...chain.runtime, start: answering(stdout, exitCode) };
    const [versions] = await listPluginVersions(listOf('1.0.0', [{ type: 'noop' }]), runtime);
    expect(versions?.supportedVersions).toEqual(expected);
  });

  test.each(['', '{}', '{"cniVersion":"1.0.0"}', '{"supportedVersions":["1.0.0"]}'])(
    'refuses %j',
    async stdout => {
      const runtime = { ...chain.runtime, start: answering(stdout) };
      await expect(listPluginVersions(listOf('1.0.0', [{ type: 'noop' }]), runtime)).rejects.toThrow(
        'Cannot read versions of plugin "noop"',
      );
    },
  );
});

describe('validateNetwork()', () => {
  test('returns the capabilities that links declare', async () => {
    const list = listOf('1.0.0', [
      { type: 'noop', capabilities: { mac: true, ips: false } },
      { type: 'noop', capabilities: { mac: true, portMappings: true } },
    ]);
    expect(await validateNetwork(list, chain.runtime)).toEqual(['mac', 'portMappings']);
  });

  test('reports every link that is missing or does not speak the version', async () => {
    const runtime = { ...chain.runtime, start: answering('{"cniVersion":"0.2.0"}') };
    const list = listOf('1.0.0', [{ type: 'noop' }, { type: 'missing' }]);
    await expect(validateNetwork(list, runtime)).rejects.toMatchObject({
      message: 'Cannot use network "testnet": 2 steps failed',
      details: expect.stringContaining('config is "1.0.0", plugin supports ["0.1.0" "0.2.0"]'),
    });
  });
});
