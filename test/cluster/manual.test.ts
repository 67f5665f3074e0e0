// Is the manual's section on Kubernetes what the harness executes, and does it fit what the commands print?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import { TOOL_VERSION } from '../../src/cli/command.ts';
import { COMMANDS } from '../../src/cli/commands.ts';
import { kubeconfigIn } from '../../src/cli/install/kubeconfig.ts';
import { printFor } from '../../src/cli/install/print.ts';
import { blocksIn, readPage, sectionOf } from '../helpers/page.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { readSources } from '../helpers/source-tree.ts';
import type { Cluster } from './cluster.ts';
import { installCatena, uninstallCatena } from './install-catena.ts';
import { MANUAL, manual, REPLACEABLE } from './manual.ts';
import type { Node } from './node.ts';

const SECTION = sectionOf(MANUAL.page, MANUAL.section);
const BLOCKS = blocksIn(SECTION);
const PRINT = {
  ...{ binDir: '/opt/cni/bin', confDir: '/etc/cni/net.d', version: TOOL_VERSION, home: 'dist/bin' },
  ...{ asDefault: true, withAccount: true, withMetrics: true, kubernetes: 30 },
  ...{ withDefinitions: false, image: `localhost/catena:${TOOL_VERSION}` },
};

test('the harness uses every block of the section, and names no other', () => {
  const used = readSources('test/cluster')
    .filter(({ path }) => !path.endsWith('.test.ts'))
    .flatMap(({ code }) => Array.from(code.matchAll(/\bmanual\(\s*'([^']+)'/g), ([, name = '']) => name));
  expect(BLOCKS.map(({ name }) => name).sort()).toEqual([...new Set(used)].sort());
});

test('installing executes the blocks of the manual with their words, and uninstalling does', async () => {
  const tmp = fs.mkdtempSync(`${os.tmpdir()}/catena-manual-`);
  const executed: string[] = [];
  const kubectl = {
    apply: async () => '',
    list: async () => [],
    follow: async (commands: string) => void executed.push(commands),
  };
  const machine = { lab: { tmp }, ok: async (argv: readonly string[]) => void executed.push(argv[2] ?? '') };
  const cluster = { kubectl, control: { machine }, nodes: [] } as unknown as Cluster;
  try {
    await installCatena(cluster);
    expect(fs.readFileSync(`${tmp}/install/pods.conflist`, 'utf8')).toBe(textOf('pods.conflist'));
    await uninstallCatena(cluster, [{ machine } as unknown as Node]);
  } finally {
    fs.rmSync(tmp, { recursive: true });
  }
  const own = (text: string) => text.replaceAll('dist/bin', BIN_DIR).replaceAll('1.30', '1.20');
  expect(executed).toEqual([
    ...['kinds', 'manifest', 'delete'].map(name => own(textOf(name))),
    `cd "$1"\n${textOf('purge')}`,
  ]);
});

function textOf(name: string): string {
  const found = BLOCKS.find(one => one.name === name);
  if (found === undefined) throw new Error(`the section has no block "${name}"`);
  return found.text;
}

test('each word that the harness replaces is in the section, and its own page says by what', () => {
  const [, ...rows] = sectionOf('test/cluster/README.md', 'How is Catena installed?').split('\n| `');
  const told = rows.map(row => row.split('`')[0]?.replace('<version>', TOOL_VERSION));
  expect(told.sort()).toEqual(Object.values(REPLACEABLE).sort());
  const commands = BLOCKS.map(({ text }) => text).join('');
  expect(Object.values(REPLACEABLE).filter(word => !commands.includes(word))).toEqual([]);
});

test('a block that the manual lacks, or a word that a block lacks, is an error', () => {
  expect(() => manual('none')).toThrow('Cannot find one block "none"');
  expect(() => manual('purge', { archive: 'x' })).toThrow('Cannot replace "catena.tar"');
  expect(manual('import', { archive: '/a/$&.tar' })).toContain(' /a/$&.tar\n');
});

test('the image is built as the printed Containerfile says, and has the name that the manifest has', () => {
  const [first = ''] = printFor('containerfile', PRINT).split('\n');
  expect(textOf('image').split('\n')).toContain(first.replace('# ', ''));
  expect(printFor('daemonset', PRINT)).toContain(`image: ${REPLACEABLE.image}\n`);
});

test('the list names the kubeconfig of the account', () => {
  const { plugins } = JSON.parse(textOf('pods.conflist'));
  expect(plugins[0].kubeconfig).toBe(kubeconfigIn(PRINT.confDir));
});

test('the section uses options that the command has', () => {
  const options = COMMANDS.find(({ name }) => name === 'install')?.options ?? {};
  const lines = BLOCKS.flatMap(({ text }) =>
    text.split('\n').filter(line => line.includes('catena install ')),
  );
  const given = lines.flatMap(line => Array.from(line.matchAll(/ --([\w-]+)/g), ([, name = '']) => name));
  expect(given).toContain('with-account');
  expect(given.filter(name => !Object.hasOwn(options, name))).toEqual([]);
});

test('README.md links to the section, and the commands for it there are in it', () => {
  const short = sectionOf('README.md', 'containerd, CRI-O and Kubernetes');
  expect(short).toContain('](src/cli/install/README.md#kubernetes)');
  const printing = Array.from(short.matchAll(/`(catena install --print [^`]+)`/g), ([, words = '']) => words);
  expect(printing.length).toBeGreaterThan(0);
  expect(printing.filter(words => !BLOCKS.some(({ text }) => text.includes(words)))).toEqual([]);
  expect(readPage(MANUAL.page)).toContain(`\n## ${MANUAL.section}\n`);
});
