// Does src/cli/JSON.md say what `--json` prints?
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { runMain } from '../../src/cli/main.ts';
import type { PluginCatalog } from '../../src/cni/plugin-about.ts';
import { expectGenerated } from '../helpers/generated.ts';
import { ROOT, readSources } from '../helpers/source-tree.ts';

/** Types of the values that `--json` prints, by the folder that declares them. */
const JSON_TYPES: readonly (readonly [folder: string, names: readonly string[]])[] = [
  [
    'src/chain',
    [
      'RepairReport',
      'Recovery',
      'AttachmentCondition',
      'PluginCondition',
      'AttachmentCheck',
      'KernelTransaction',
    ],
  ],
  ['src/adopt', ['AdoptReport', 'Adoption']],
  ['src/runtimes', ['Choice', 'Verdict']],
  ['src/observe', ['RequestRecord', 'PluginRecord', 'FinishRecord']],
  ['src/doctor', ['DoctorVerdict', 'Finding']],
  ['src/validate', ['Finding']],
  ['src/lab', ['PluginReport', 'Failure']],
  ['src/compare', ['CompareReport', 'PluginReport', 'ReportedDifference', 'Difference', 'Crossing']],
  ['src/cli', ['Survey', 'SwapReport', 'LogEntry']],
  ['src/handover', ['Handover', 'PluginParts']],
  ['src/install', ['Step', 'Pick', 'UninstallStep']],
  ['src/purge', ['PurgeStep']],
];

test('src/cli/JSON.md has the types that --json prints', () => {
  const declarations = JSON_TYPES.flatMap(([folder, names]) => {
    const sources = readSources(folder);
    const found = names.map(name => findDeclaration(name, folder, sources));
    return ['', `### ${folder}`, '', '```ts', ...found.join('\n\n').split('\n'), '```'];
  });
  expectGenerated('src/cli/JSON.md', 'types', declarations.slice(1));
});

test('src/cli/JSON.md has the schemas of the node', () => {
  const source = fs.readFileSync(path.join(ROOT, 'src/node/model.ts'), 'utf8');
  const found = source.match(/^\/\*\* [^\n]*\nexport const \w+ = z\.strictObject\(\{\n.*?^\}\);/gms) ?? [];
  expect(found.length).toBeGreaterThan(10);
  const shown = found.map(text => text.replace(/^export const /m, 'const '));
  expectGenerated('src/cli/JSON.md', 'node', ['```ts', ...shown.join('\n\n').split('\n'), '```']);
});

describe('src/cli/JSON.md has every key that is printed by', () => {
  let dir: string;
  beforeAll(() => {
    dir = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-json-'));
    const source = { cniVersion: '1.1.0', name: 'net', plugins: [{ type: 'none' }] };
    fs.writeFileSync(path.join(dir, 'net.conflist'), JSON.stringify(source));
    fs.writeFileSync(path.join(dir, 'broken.conflist'), '{');
    // What an ADD that was cut off leaves.
    fs.mkdirSync(path.join(dir, 'results'));
    const cached = {
      kind: 'cniCacheV1',
      containerId: 'c1',
      networkName: 'net',
      ifName: 'eth0',
      netns: '/run/netns/c1',
    };
    fs.writeFileSync(
      path.join(dir, 'results/net-c1-eth0'),
      JSON.stringify({ ...cached, config: btoa(JSON.stringify(source)) }),
    );
  });
  afterAll(() => fs.rmSync(dir, { recursive: true }));

  test.each([
    ['list', []],
    ['networks', ['--files-only', '--etc', '/nowhere']],
    ['validate', ['--files-only', '.']],
    ['gc --dry-run', ['--all', 'net']],
    ['repair', []],
    ['adopt', ['--dry-run']],
    ['doctor', []],
    ['ls', ['--all']],
    ['log', ['--since', '2000-01-01']],
  ])('catena %s', async (command, more) => {
    let printed = '';
    const env = {
      PATH: process.env.PATH,
      NETCONFPATH: dir,
      CNI_PATH: dir,
      CATENA_CNI_CACHE_DIR: dir,
      CATENA_STATE_DIR: path.join(dir, 'state'),
      CATENA_RUN_DIR: path.join(dir, 'run'),
    };
    const args = [...command.split(' '), '--json', ...more.map(one => (one === '.' ? dir : one))];
    const plugins = { types: [], find: () => undefined } as unknown as PluginCatalog;
    const write = (fd: 1 | 2, text: string): void => {
      if (fd === 1) printed += text;
    };
    await runMain(args, { plugins, env, cwd: dir, write });
    const page = fs.readFileSync(path.join(ROOT, 'src/cli/JSON.md'), 'utf8');
    const known = new Set(page.match(/\w+/g));
    const keys = keysIn(JSON.parse(printed));
    expect(keys.length).toBeGreaterThan(0);
    expect(keys.filter(key => !known.has(key))).toEqual([]);
  });
});

function keysIn(value: unknown): string[] {
  if (Array.isArray(value)) return value.flatMap(keysIn);
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => [key, ...keysIn(inner)]);
}

/** An exported interface as JSON has it, with its comments. */
function findDeclaration(name: string, folder: string, sources: ReturnType<typeof readSources>): string {
  const pattern = new RegExp(`^export interface ${name}\\b[^{]*\\{\\n.*?^\\}`, 'ms');
  const [found] = sources.flatMap(({ text }) => pattern.exec(text)?.[0] ?? []);
  if (found === undefined) throw new Error(`Cannot find interface ${name} below ${folder}: mend JSON_TYPES`);
  return found
    .replace(/^export /, '')
    .replace(/\breadonly /g, '')
    .replace(/\bcontainerId\b/g, 'containerID')
    .replace(/\bCniError\b/g, 'Error');
}
