// Which version does a network run with, which verbs does it allow, and how are VERSION replies read?
// (reference notes "Versions", "Version selection", "Per config version")

import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { parseNetwork } from '../../src/chain/config/conflist.ts';
import { listPluginVersions } from '../../src/chain/config/plugin-version.ts';
import { collectGarbage } from '../../src/chain/records/collect-garbage.ts';
import { addNetwork, checkNetwork, deleteNetwork, networkStatus } from '../../src/chain/run/run.ts';
import type { JsonObject } from '../../src/cni/json.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

describe('the version of a list', () => {
  const versionOf = (list: JsonObject) =>
    parseNetwork(JSON.stringify({ name: 'n', plugins: [{ type: 't' }], ...list })).version;

  test.each<[JsonObject, string]>([
    [{}, '0.1.0'],
    [{ cniVersion: '' }, '0.1.0'],
    [{ cniVersion: '0.3.1' }, '0.3.1'],
    [{ cniVersions: ['0.4.0', '1.0.0', '0.3.1'] }, '1.0.0'],
    [{ cniVersion: '1.1.0', cniVersions: ['0.4.0'] }, '1.1.0'],
    [{ cniVersion: '0.4.0', cniVersions: ['1.0.0', '2.0.0'] }, '1.0.0'],
    [{ cniVersion: '2.0.0', cniVersions: ['0.4.0'] }, '0.4.0'],
    [{ cniVersion: '1.0.0', cniVersions: [] }, '1.0.0'],
    [{ cniVersion: '1.0.0', cniVersions: ['9.0.0'] }, '1.0.0'],
    // The reference keeps the text as it is written, and no plugin supports "1.0".
    [{ cniVersions: ['1.0', '0.4'] }, '1.0.0'],
    [{ cniVersions: ['01.1'] }, '1.1.0'],
    // The highest that the runtime supports: one between two releases is none.
    [{ cniVersions: ['0.4.0', '0.9.9'] }, '0.4.0'],
  ])('%j is %s', (list, version) => {
    expect(versionOf(list)).toBe(version as never);
  });

  test.each<[JsonObject, number, string]>([
    [{ cniVersion: '1.0' }, 1, 'found "1.0", supported versions are 0.1.0,'],
    [{ cniVersion: '2.0.0' }, 1, 'found "2.0.0"'],
    [{ cniVersion: 'garbage' }, 1, 'found "garbage"'],
    [{ cniVersions: [] }, 1, 'found no version'],
    [{ cniVersions: ['9.0.0'] }, 1, 'found "9.0.0"'],
    ...['v1.0.0', '1.0.0-rc1', '1..0', ' 1.0.0', '1.0.0.0', '-1', '1.x'].map(
      (text): [JsonObject, number, string] => [
        { cniVersions: ['1.0.0', text] },
        7,
        `Cannot use CNI version ${JSON.stringify(text)}`,
      ],
    ),
    [{ cniVersion: 'x', cniVersions: ['1.0.0'] }, 7, 'Cannot use CNI version "x"'],
  ])('is refused in %j', (list, code, message) => {
    expect(() => versionOf(list)).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(message) }),
    );
  });
});

describe('commands', () => {
  const GATES: readonly (readonly [string, { check: boolean; prevOnDel: boolean; gc: boolean }])[] = [
    ['', { check: false, prevOnDel: false, gc: false }],
    ['0.1.0', { check: false, prevOnDel: false, gc: false }],
    ['0.2.0', { check: false, prevOnDel: false, gc: false }],
    ['0.3.0', { check: false, prevOnDel: false, gc: false }],
    ['0.3.1', { check: false, prevOnDel: false, gc: false }],
    ['0.4.0', { check: true, prevOnDel: true, gc: false }],
    ['1.0.0', { check: true, prevOnDel: true, gc: false }],
    ['1.1.0', { check: true, prevOnDel: true, gc: true }],
  ];
  test.each(GATES)('[%s] are sent as its version permits: %j', async (version, gates) => {
    const list = listOf(version, [
      chain.noop('one', { ReportResult: { cniVersion: '1.1.0', ips: [{ address: '10.0.0.2/24' }] } }),
      chain.noop('two'),
    ]);
    await addNetwork(list, ATTACHMENT, chain.runtime);
    const check = checkNetwork(list, ATTACHMENT, chain.runtime);
    if (gates.check) await check;
    else
      await expect(check).rejects.toMatchObject({
        code: 1,
        message: expect.stringContaining('does not support the CHECK command'),
      });
    await networkStatus(list, chain.runtime);
    await collectGarbage(list, { valid: [{ containerID: 'c1', ifname: 'eth0' }] }, chain.runtime);
    await deleteNetwork(list, ATTACHMENT, chain.runtime);
    const seen = chain.calls().map(({ command, request }) => {
      return `${command} ${request.label}${request.prevResult === undefined ? '' : ' +prevResult'}`;
    });
    const twice = (verb: string, more = '') => [`${verb} one${more}`, `${verb} two${more}`];
    expect(seen).toEqual([
      'ADD one',
      'ADD two +prevResult',
      ...(gates.check ? twice('CHECK', ' +prevResult') : []),
      ...(gates.gc ? [...twice('STATUS'), ...twice('GC')] : []),
      ...twice('DEL', gates.prevOnDel ? ' +prevResult' : '').reverse(),
    ]);
  });
});

describe('a VERSION reply', () => {
  const ask = async (stdout: string, exitCode = 0) => {
    const runtime = { ...chain.runtime, exec: () => ({ stdout, exitCode }) };
    const [versions] = await listPluginVersions(listOf('1.0.0', [{ type: 'noop' }]), runtime);
    return versions?.supportedVersions;
  };

  test.each([
    ['{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}', ['1.0.0', '1.1.0']],
    ['{"cniVersion":"1.1.0","supportedVersions":["0.-42.0","x"]}', ['0.-42.0', 'x']],
    ['{"CNIVersion":"1.1.0","SupportedVersions":["1.0.0"]}', ['1.0.0']],
    ['{"cniVersion":"0.2.0"}', ['0.1.0', '0.2.0']],
    ['{"cniVersion":"0.2.0","supportedVersions":[]}', ['0.1.0', '0.2.0']],
  ])('%s is read as a list of versions', async (stdout, expected) => {
    expect(await ask(stdout)).toEqual(expected);
  });

  test.each([
    '',
    '{}',
    '{"supportedVersions":["1.0.0"]}',
    '{"cniVersion":"","supportedVersions":["1.0.0"]}',
    '{"cniVersion":"1.0.0"}',
    '{"cniVersion":"0.3.0","supportedVersions":[]}',
    '[]',
    'words',
  ])('%j is refused', async stdout => {
    await expect(ask(stdout)).rejects.toMatchObject({ code: 6, plugin: { type: 'noop', verb: 'VERSION' } });
  });

  test('is 0.1.0 for a plugin that reports the unknown command in these exact words', async () => {
    expect(await ask('{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}', 1)).toEqual(['0.1.0']);
    await expect(
      ask('{"code":4,"msg":"unknown CNI_COMMAND: VERSION","details":"x"}', 1),
    ).rejects.toMatchObject({
      code: 4,
    });
    await expect(ask('{"code":4,"msg":"unknown command"}', 1)).rejects.toMatchObject({ code: 4 });
  });
});
