// Do the reference pages say what the sources say: folders, library, commands, variables, settings, metrics and error codes?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import type { Registry } from 'prom-client';
import { BETWEEN_SETTINGS } from '../../src/between/plan.ts';
import { COMMANDS, GLOBAL_OPTIONS } from '../../src/cli/commands.ts';
import { COMMON_EXIT_CODES, INCOMPLETE, MORE_EXIT_CODES } from '../../src/cli/exit-codes.ts';
import { POOL_LIMITS } from '../../src/daemon/pool.ts';
import * as library from '../../src/index.ts';
import { type DoctorVerdict, exitCodeOf } from '../../src/node/doctor/finding.ts';
import { addGrpcMetrics, openMetrics } from '../../src/observe/metrics.ts';
import { WATCH_SETTINGS } from '../../src/watch/settings.ts';
import { BEYOND_REPAIR, NODE_WAYS, SCENES } from '../helpers/damage-scenes.ts';
import { expectGenerated, table } from '../helpers/generated.ts';
import { listFiles, ROOT, readSources } from '../helpers/source-tree.ts';

test('src/README.md has a row for every folder', () => {
  const folders = fs
    .readdirSync(path.join(ROOT, 'src'), { withFileTypes: true })
    .filter(entry => entry.isDirectory())
    .map(({ name }) => name);
  const page = fs.readFileSync(path.join(ROOT, 'src/README.md'), 'utf8');
  const [, map = ''] = /^## Where is what\?\n(.*?)^## /ms.exec(page) ?? [];
  const rows = Array.from(map.matchAll(/^\|.*?\| \[?`(\w+)\/`/gm), ([, name = '']) => name);
  expect(rows.sort()).toEqual(folders.sort());
});

test('src/LIBRARY.md names functions that the library exports', () => {
  const page = fs.readFileSync(path.join(ROOT, 'src/LIBRARY.md'), 'utf8');
  const cells = Array.from(page.matchAll(/^\| `\w+`.*? \| (.*) \|$/gm), ([, cell = '']) => cell);
  const named = cells.flatMap(cell =>
    Array.from(cell.matchAll(/`([a-z]+[A-Z]\w+|networkStatus)`/g), ([, name = '']) => name),
  );
  expect(named.length).toBeGreaterThan(15);
  expect(named.filter(name => !Object.hasOwn(library, name))).toEqual([]);
});

test('Markdown pages link to files and headings that exist', () => {
  const pages = listFiles('.').filter(file => file.endsWith('.md') && !file.startsWith('src/cli/init/'));
  const broken = pages.flatMap(page =>
    linksOf(page)
      .filter(({ file, heading }) => {
        if (!fs.existsSync(path.join(ROOT, file))) return true;
        return heading !== undefined && !headingsOf(file).includes(heading);
      })
      .map(({ target }) => `${page}: ${target}`),
  );
  expect(broken).toEqual([]);
});

function linksOf(page: string): { target: string; file: string; heading: string | undefined }[] {
  const text = fs.readFileSync(path.join(ROOT, page), 'utf8').replace(/^ *```.*?^ *```$/gms, '');
  return Array.from(text.matchAll(/\]\((?!https?:)([^)\s]+)\)/g), ([, target = '']) => {
    const [file = '', heading] = target.split('#');
    return { target, file: file === '' ? page : path.join(path.dirname(page), file), heading };
  });
}

/** Headings as GitHub turns them into anchors. */
function headingsOf(page: string): string[] {
  const text = fs.readFileSync(path.join(ROOT, page), 'utf8');
  return Array.from(text.matchAll(/^#+ (.*)$/gm), ([, title = '']) =>
    title
      .toLowerCase()
      .replace(/[^\w\- ]/g, '')
      .replaceAll(' ', '-'),
  );
}

test('src/cli/README.md has every exit code', () => {
  const more = Object.entries(MORE_EXIT_CODES).flatMap(([name, codes]) =>
    codes.map(({ code, meaning }) => [`[${name}](#catena-${name})`, `${code}`, meaning]),
  );
  expectGenerated('src/cli/README.md', 'exit codes', [
    ...table(
      ['command', 'exit code', 'meaning'],
      [...COMMON_EXIT_CODES.map(({ code, meaning }) => ['all', `${code}`, meaning]), ...more],
    ),
  ]);
  expect(Object.keys(MORE_EXIT_CODES).filter(name => !COMMANDS.some(one => one.name === name))).toEqual([]);
  // The doctor's verdict is made without knowing of commands.
  const blind = {
    state: 'blind',
    thingsToDo: 0,
    errors: 0,
    warnings: 0,
    unexamined: 1,
    notes: 0,
    summary: '',
  };
  expect(exitCodeOf(blind as DoctorVerdict)).toBe(INCOMPLETE);
});

test('src/cli/README.md lists every command with its options', () => {
  const optionRows = (options: (typeof COMMANDS)[number]['options']) =>
    table(
      ['option', 'meaning'],
      Object.entries(options).map(([name, { placeholder, help, short }]) => [
        `\`${short === undefined ? '' : `-${short}, `}--${[name, placeholder].filter(Boolean).join(' ')}\``,
        help,
      ]),
    );
  const sections = COMMANDS.flatMap(({ name, usage, summary, options }) => [
    '',
    `### catena ${name}`,
    '',
    `\`${`catena ${name} ${usage}`.trim()}\`: ${summary}.`,
    ...(Object.keys(options).length > 0 ? ['', ...optionRows(options)] : []),
  ]);
  expectGenerated('src/cli/README.md', 'commands', [
    ...table(
      ['command', 'what it does'],
      COMMANDS.map(({ name, summary }) => [`[${name}](#catena-${name})`, summary]),
    ),
    '',
    'Options of every command:',
    '',
    ...optionRows(GLOBAL_OPTIONS),
    ...sections,
  ]);
});

test('src/cli/README.md lists exactly the environment variables that the sources read', () => {
  const read = readSources('src', 'plugins').flatMap(({ code }) => [
    ...Array.from(
      code.matchAll(/\benv\??\.([A-Z]+_[A-Z_]+|NETCONFPATH|TRACEPARENT)\b/g),
      ([, name = '']) => name,
    ),
    ...Array.from(code.matchAll(/'(CATENA_[A-Z_]+)'/g), ([, name = '']) => name),
    ...Array.from(code.matchAll(/const \{ ([A-Z_, ]+) \} = env\b/g), ([, names = '']) =>
      names.split(', '),
    ).flat(),
  ]);
  const page = fs.readFileSync(path.join(ROOT, 'src/cli/README.md'), 'utf8');
  const [, section = ''] = /^## Environment variables\n(.*?)^## /ms.exec(page) ?? [];
  const rows = section.split('\n').filter(line => line.startsWith('| `'));
  const listed = rows.flatMap(row =>
    Array.from((row.split(' | ')[0] ?? '').matchAll(/`([A-Z_]+)`/g), ([, name = '']) => name),
  );
  expect(listed.sort()).toEqual([...new Set(read)].filter(name => !NOT_VARIABLES.includes(name)).sort());
});

/** An argument of `CNI_ARGS`, and what only the build reads. */
const NOT_VARIABLES = ['CATENA_NETWORKS', 'SOURCE_DATE_EPOCH'];

test('src/daemon/README.md lists every setting of the daemon', () => {
  const source = fs.readFileSync(path.join(ROOT, 'src/daemon/settings.ts'), 'utf8');
  const [, body = ''] = /z\.strictObject\(\{\n(.*?)^\}\);/ms.exec(source) ?? [];
  const options = COMMANDS.find(({ name }) => name === 'daemon')?.options ?? {};
  const defaults: Readonly<Record<string, number | string>> = {
    callsPerWorker: POOL_LIMITS.calls,
    memoryPerWorkerMiB: POOL_LIMITS.bytes / 1024 / 1024,
    idleSeconds: POOL_LIMITS.idleMs / 1_000,
    watch: `\`${WATCH_SETTINGS.policy}\``,
    lists: `\`${WATCH_SETTINGS.lists}\``,
    watchSeconds: WATCH_SETTINGS.everyMs / 1_000,
    leftoverSeconds: WATCH_SETTINGS.leftoverMs / 1_000,
    nodes: 'none',
    nodesKubeconfig: 'none',
    clusterCidrs: 'none',
    nodeWays: `\`${BETWEEN_SETTINGS.ways}\``,
    vxlanId: BETWEEN_SETTINGS.vni,
    vxlanPort: BETWEEN_SETTINGS.port,
  };
  const rows = Array.from(body.matchAll(/\/\*\* (.*?) \*\/\n {2}(\w+):/g), ([, meaning = '', name = '']) => {
    const option = name.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`).replace(/s$/, '');
    const known = [option, `${option}s`].find(one => one in options);
    return [`\`${name}\``, meaning, known === undefined ? `${defaults[name]}` : `\`--${known}\``];
  });
  expect(rows.length).toBeGreaterThan(10);
  expect(rows.filter(([, , otherwise]) => otherwise === 'undefined')).toEqual([]);
  expectGenerated(
    'src/daemon/README.md',
    'settings',
    table(['setting', 'meaning', 'default, or the option that sets it'], rows),
  );
});

test('src/observe/README.md lists every metric', async () => {
  const none = { idle: 0, busy: 0 };
  const { registry } = openMetrics({
    version: '',
    workers: () => none,
    requests: () => ({ running: 0, queued: 0 }),
    attachments: () => new Map(),
    leaked: () => 0,
    ranges: () => [],
    pools: () => [],
    declined: () => ({}),
    watch: () => undefined,
    between: () => undefined,
    dropped: () => ({ log: 0, spans: 0, traces: 0 }),
  });
  addGrpcMetrics(registry, [], []);
  expectGenerated(
    'src/observe/README.md',
    'metrics',
    table(['metric', 'kind', 'labels', 'meaning'], metricsOf(registry)),
  );
});

function metricsOf(registry: Registry): string[][] {
  return registry.getMetricsAsArray().map(metric => {
    // prom-client keeps the labels on the object and leaves them out of its types.
    const { labelNames = [] } = metric as unknown as { readonly labelNames?: readonly string[] };
    return [
      `\`${metric.name}\``,
      metric.constructor.name.toLowerCase(),
      labelNames.map(label => `\`${label}\``).join(', '),
      metric.help,
    ];
  });
}

test('src/watch/README.md says what comes of every damage that is tried', () => {
  const ways = [...SCENES, BEYOND_REPAIR].map(({ way, outcome }) => [way, outcome]);
  expectGenerated('src/watch/README.md', 'damages', table(['damage', 'outcome'], [...ways, ...NODE_WAYS]));
});

test('src/cni/README.md lists every error code', () => {
  const source = fs.readFileSync(path.join(ROOT, 'src/cni/errors.ts'), 'utf8');
  const [, body = ''] = /export const ErrorCode = \{\n(.*?)^\} as const;/ms.exec(source) ?? [];
  const rows = Array.from(
    body.matchAll(/\/\*\* (.*?) \*\/\n {2}(\w+): (\d+),/g),
    ([, meaning = '', name = '', code = '']) => [code, `\`${name}\``, meaning],
  );
  expect(rows.length).toBeGreaterThan(10);
  const [, taken = ''] = /ADDRESS_TAKEN = (\d+)/.exec(source) ?? [];
  rows.splice(-1, 0, [
    taken,
    '`ADDRESS_TAKEN`',
    'Ours: the address belongs to another attachment that still exists.',
  ]);
  expectGenerated('src/cni/README.md', 'error codes', table(['code', 'name', 'meaning'], rows));
});
