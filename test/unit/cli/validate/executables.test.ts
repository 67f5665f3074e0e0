import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { openExecutables } from '../../../../src/cli/validate/executables.ts';
import { validatePath } from '../../../../src/cli/validate/validate.ts';
import type { PluginCatalog } from '../../../../src/cni/plugin-about.ts';

const NOBODYS: PluginCatalog = { types: [], find: () => undefined, schemas: async () => ({}) };

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-executables-'));
  fs.mkdirSync(path.join(dir, 'bin'));
});
afterEach(() => fs.rmSync(dir, { recursive: true }));

/** A plugin that answers VERSION with these, and counts how often it was asked. */
function plugin(type: string, ...versions: string[]): void {
  const reply = JSON.stringify({ cniVersion: '1.1.0', supportedVersions: versions });
  const script = `#!/bin/sh\necho asked >> '${dir}/${type}'\necho '${reply}'\n`;
  fs.writeFileSync(path.join(dir, 'bin', type), script, { mode: 0o755 });
}

async function judge(...networks: object[]) {
  for (const [i, network] of networks.entries()) {
    fs.writeFileSync(path.join(dir, `${i}.conflist`), JSON.stringify({ name: `n${i}`, ...network }));
  }
  const executables = openExecutables({ pluginDirs: [path.join(dir, 'nowhere'), path.join(dir, 'bin')] });
  return (await validatePath(dir, NOBODYS, executables)).findings;
}

describe('openExecutables()', () => {
  test('reports executables missing from all directories, of plugins and IPAM plugins alike', async () => {
    plugin('here', '1.0.0');
    const plugins = [{ type: 'here', ipam: { type: 'ipam' } }, { type: 'gone' }, { type: '../here' }];
    expect(await judge({ cniVersion: '1.0.0', plugins })).toMatchObject([
      {
        column: 76,
        rule: 'executable',
        message: expect.stringContaining('Cannot find plugin "ipam": no such file'),
      },
      { column: 93, rule: 'executable', message: expect.stringContaining('Cannot find plugin "gone"') },
      { column: 109, rule: 'executable', message: expect.stringContaining('Cannot find plugin "../here"') },
    ]);
  });

  test("shows the versions of all plugins, and the highest they share, when one does not support the list's", async () => {
    plugin('new', '0.3.1', '0.4.0', '1.0.0', '1.1.0');
    plugin('ipam', '0.3.1', '0.4.0', '1.0.0');
    plugin('ancient', '0.1.0', '0.3.1', '0.4.0');
    const plugins = [{ type: 'new', ipam: { type: 'ipam' } }, { type: 'ancient' }];
    expect(await judge({ cniVersion: '1.1.0', plugins })).toMatchObject([
      {
        line: 1,
        column: 27,
        severity: 'error',
        rule: 'version',
        message:
          'network "n0" runs with version 1.1.0, which is not supported by "ipam", "ancient": the highest version that all plugins support is 0.4.0',
        details: [
          'new      -      -      -      0.3.1  0.4.0  1.0.0  1.1.0',
          'ipam     -      -      -      0.3.1  0.4.0  1.0.0  -',
          'ancient  0.1.0  -      -      0.3.1  0.4.0  -      -',
        ],
      },
    ]);
  });

  test('reports that there is no common version', async () => {
    plugin('new', '1.1.0');
    plugin('ancient', '0.1.0');
    const [finding] = await judge({
      cniVersions: ['1.1.0'],
      plugins: [{ type: 'new' }, { type: 'ancient' }],
    });
    expect(finding?.message).toEndWith('not supported by "ancient": no version is supported by all plugins');
  });

  test('calls each executable once', async () => {
    plugin('one', '1.0.0');
    const network = {
      cniVersion: '1.0.0',
      plugins: [{ type: 'one' }, { type: 'one', ipam: { type: 'one' } }],
    };
    expect(await judge(network, network)).toEqual([]);
    expect(fs.readFileSync(path.join(dir, 'one'), 'utf8')).toBe('asked\n');
  });

  test('reports one that does not answer', async () => {
    fs.writeFileSync(path.join(dir, 'bin/mute'), '#!/bin/sh\nexit 3\n', { mode: 0o755 });
    fs.writeFileSync(path.join(dir, 'bin/plain'), '', { mode: 0o644 });
    const findings = await judge({ cniVersion: '1.0.0', plugins: [{ type: 'mute' }, { type: 'plain' }] });
    expect(findings.map(({ rule }) => rule)).toEqual(['executable', 'executable']);
    expect(findings[0]?.message).toStartWith('Cannot get the supported versions of "mute": ');
    expect(findings[1]?.message).toContain('EACCES');
  });

  test('treats every other executable as foreign', () => {
    plugin('other', '1.0.0');
    fs.symlinkSync('/proc/self/exe', path.join(dir, 'bin/self'));
    const { isForeign } = openExecutables({ pluginDirs: [path.join(dir, 'bin')] });
    expect([isForeign('other'), isForeign('self'), isForeign('gone')]).toEqual([true, false, false]);
  });
});
