// Does src/cli/JSON.md say what is printed for programs, and is that what the published schemas say?
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { renderAnswerSchemas } from '../../plugins/build/answer-schemas.ts';
import { KINDS } from '../../src/cli/answers/kinds.ts';
import { runMain } from '../../src/cli/main.ts';
import type { PluginCatalog } from '../../src/cni/plugin-about.ts';
import { expectAnswer } from '../helpers/answer.ts';
import { expectGenerated } from '../helpers/generated.ts';
import { ROOT, readSources } from '../helpers/source-tree.ts';

const PAGE = 'src/cli/JSON.md';

/** Each becomes a section. */
const SHAPES = [
  'src/node/model.ts',
  ...fs
    .readdirSync(path.join(ROOT, 'src/cli/answers'))
    .filter(name => !['envelope.ts', 'kinds.ts'].includes(name))
    .sort()
    .map(name => `src/cli/answers/${name}`),
];

test(`${PAGE} has the shapes of the answers`, () => {
  const sections = SHAPES.flatMap(file => {
    const source = fs.readFileSync(path.join(ROOT, file), 'utf8');
    const [, , ...found] = source.split(/\n(?=\/\*\*|const [A-Z_]+ = )/);
    const first = source.split('\n')[0]?.replace('// ', '') ?? '';
    const constants = [source.split(/\n(?=\/\*\*|const [A-Z_]+ = )/)[1] ?? '', ...found];
    const shown = constants.map(text =>
      text
        .replace(/^export type .*\n?/gm, '')
        .replace(/^export (?=const |function )/m, '')
        .trimEnd(),
    );
    return ['', `### ${first}`, '', '```ts', ...shown.join('\n\n').split('\n'), '```'];
  });
  expectGenerated(PAGE, 'shapes', sections.slice(1));
});

test(`${PAGE} names every kind, and no other`, () => {
  const text = fs.readFileSync(path.join(ROOT, PAGE), 'utf8');
  const table = text.slice(text.indexOf('## Kinds'), text.indexOf('## Shapes'));
  const named = [...table.matchAll(/^\|.*$/gm)].flatMap(([row]) => row.match(/`[A-Z][a-z]\w+`/g) ?? []);
  expect([...new Set(named)].sort()).toEqual(
    Object.keys(KINDS)
      .map(kind => `\`${kind}\``)
      .sort(),
  );
});

test('a schema has the comments of its own constant, and takes keys that it does not know', () => {
  const { Replacement, LeaseList } = renderAnswerSchemas();
  expect(Replacement).toMatchObject({
    title: 'Replacement',
    properties: {
      kind: { const: 'Replacement' },
      digest: { type: 'string' },
      target: { description: 'The file found on `CNI_PATH`.' },
    },
    $defs: { Comparison: { properties: { same: { type: 'boolean' } } } },
  });
  expect(LeaseList).toMatchObject({
    required: ['apiVersion', 'kind', 'items'],
    $defs: { Lease: { description: '`catena ipam why`: an address that is leased.' } },
  });
  expect(JSON.stringify(renderAnswerSchemas())).not.toContain('additionalProperties":false');
});

test('no program loads the schemas: only types of them are imported', () => {
  const loading = readSources('src')
    .filter(({ path: file }) => !file.startsWith('src/cli/answers/'))
    .flatMap(
      ({ path: file, text }) =>
        text
          .match(/^import (?!type\b)[^;]*\/answers\/(?!envelope\.ts)[^;]*;$/gm)
          ?.map(line => `${file}: ${line}`) ?? [],
    );
  expect(loading).toEqual([]);
});

describe('the schema of its kind has everything that is printed by', () => {
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
    fs.mkdirSync(path.join(dir, 'leases/net'), { recursive: true });
    fs.writeFileSync(path.join(dir, 'leases/net/10.1.0.2'), 'c1\r\neth0');
  });
  afterAll(() => fs.rmSync(dir, { recursive: true }));

  async function run(...args: string[]): Promise<string> {
    let printed = '';
    const env = {
      PATH: process.env.PATH,
      NETCONFPATH: dir,
      CNI_PATH: dir,
      CATENA_CNI_CACHE_DIR: dir,
      CATENA_STATE_DIR: path.join(dir, 'state'),
      CATENA_RUN_DIR: path.join(dir, 'run'),
    };
    const plugins = {
      types: [],
      find: () => undefined,
      schemas: async () => ({}),
    } as unknown as PluginCatalog;
    const write = (fd: 1 | 2, text: string): void => {
      if (fd === 1) printed += text;
    };
    await runMain(
      args.map(one => (one === '.' ? dir : one)),
      { plugins, env, cwd: dir, write },
    );
    return printed;
  }

  test.each([
    ['UnsettledList', 'ls --unsettled'],
    ['NetworkFiles', 'networks --files-only --etc /nowhere'],
    ['Validation', 'validate --files-only .'],
    ['GarbagePlan', 'gc --dry-run --all net'],
    ['GoneList', 'gc --gone --dry-run'],
    ['RepairReport', 'repair'],
    ['Diagnosis', 'doctor'],
    ['Node', 'ls --all'],
    ['Owners', 'who eth0'],
    ['LogEntryList', 'log --since 2000-01-01'],
    ['LeaseList', 'ipam ls --data-dir leases net'],
    ['Lease', 'ipam why --data-dir leases net 10.1.0.2'],
    ['RequestList', 'log --requests'],
    ['CodeExplanation', 'help 7'],
    ['NetworkExplanation', 'validate --explain net'],
    ['Ping', 'daemon --ping'],
    ['DaemonStatus', 'daemon --status'],
    ['DaemonEnd', 'daemon --stop'],
  ] as const)('%s: catena %s', async (kind, line) => {
    const json = expectAnswer(kind, JSON.parse(await run(...line.split(' '), '--json')));
    // A time of reading differs.
    const keys = Object.keys(json);
    const yaml = Bun.YAML.parse(await run(...line.split(' '), '--output', 'yaml'));
    expect(Object.keys(expectAnswer(kind, yaml))).toEqual(keys);
  });

  test.each([
    ['networks --files-only --etc /nowhere', 'net'],
    ['ls --all', 'c1'],
    ['ipam ls --data-dir leases net', '10.1.0.2'],
    ['log --since 2000-01-01', 'c1'],
  ])('catena %s --output name', async (line, name) => {
    expect(await run(...line.split(' '), '--output', 'name')).toBe(`${name}\n`);
  });

  test.each(['networks --files-only', 'ls', 'ls --unsettled', 'log', 'log --requests', 'ipam ls'])(
    'catena %s --output wide shows no less than without it',
    async line => {
      const [text, wide] = [await run(...line.split(' ')), await run(...line.split(' '), '--output', 'wide')];
      expect(wide.length).toBeGreaterThanOrEqual(text.length);
    },
  );

  test('a format that a command does not have is a wrong command line, before anything is done', async () => {
    const call = (...args: string[]) => {
      const plugins = { types: [], find: () => undefined } as unknown as PluginCatalog;
      return runMain(args, { plugins, env: {}, cwd: dir, write: () => {} });
    };
    expect(await call('del', 'net', '/run/netns/none', '--output', 'wide')).toBe(2);
    expect(await call('log', '--output', 'svg')).toBe(2);
    expect(await call('ls', '--json', '--output', 'yaml')).toBe(2);
  });
});
