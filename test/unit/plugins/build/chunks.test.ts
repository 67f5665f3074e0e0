// Does each kind of process load only what it needs, in one piece?
import { beforeAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { chunksPlugin, quickZod } from '../../../../plugins/build/build.ts';
import { PROCESSES } from '../../../../plugins/build/chunks.ts';

const ROOT = path.resolve(import.meta.dir, '../../../..');
const ENTRY = path.join(ROOT, 'plugins/main.ts');

/** What the bundler says about a file that it would write. */
interface Output {
  readonly entryPoint?: string;
  readonly imports: readonly { readonly path: string; readonly kind: string }[];
  readonly inputs: Readonly<Record<string, unknown>>;
}

let outputs: Readonly<Record<string, Output>>;
/** The text of each, by the same path. */
let texts: ReadonlyMap<string, string>;

beforeAll(async () => {
  const built = await Bun.build({
    entrypoints: [ENTRY],
    target: 'bun',
    format: 'esm',
    splitting: true,
    metafile: true,
    plugins: [quickZod, chunksPlugin()],
  });
  outputs = (built.metafile as unknown as { outputs: typeof outputs }).outputs;
  texts = new Map(await Promise.all(built.outputs.map(async one => [one.path, await one.text()] as const)));
});

test('every module that begins a kind of process exists', () => {
  const missing = Object.values(PROCESSES)
    .flat()
    .filter(file => !fs.existsSync(path.join(ROOT, file)));
  expect(missing).toEqual([]);
});

test('a process begins with one chunk besides its entry', () => {
  expect(chunksOf('plugins/main.ts')).toHaveLength(2);
});

test('a worker is started before the modules of the command are loaded', () => {
  const early = modulesOf('plugins/main.ts', 'src/worker/process.ts');
  expect(early).toContain('src/worker/process.ts');
  expect(early.filter(file => /^src\/(cli|chain\/records)\//.test(file))).toEqual([]);
});

test('a plugin loads nothing of the runner but how history is written, and no package', () => {
  const own = ['src/plugin/run.ts', 'src/observe/history.ts', 'plugins/tuning/plugin.ts'];
  const modules = modulesOf('plugins/main.ts', ...own);
  expect(modules).toContain('plugins/tuning/plan.ts');
  const runners = modules.filter(file => /^src\/(cli|chain\/records|observe)\/|node_modules/.test(file));
  const written = ['history', 'record', 'rotating-file', 'secrets'];
  expect(runners.toSorted()).toEqual(written.map(name => `src/observe/${name}.ts`));
});

test('a chain is run with few modules of Node, which take as long to load as all of ours', () => {
  const chunks = chunksOf('plugins/main.ts', 'src/cli/main.ts', 'src/cli/commands/add.ts');
  const found = chunks.flatMap(file =>
    [...(texts.get(file) ?? '').matchAll(/^import .*from "(?:node:)?([\w/]+)";$/gm)].map(([, name]) => name),
  );
  expect([...new Set(found)].sort()).toEqual(['async_hooks', 'fs', 'path']);
});

test('an idle worker has no plugin', () => {
  const modules = modulesOf('plugins/main.ts', 'src/worker/worker.ts');
  expect(modules.filter(file => /^plugins\/[^/]+\/plugin\.ts$/.test(file))).toEqual([]);
});

test('an idle daemon has only the packages for logs and metrics', () => {
  const modules = modulesOf('plugins/main.ts', 'src/cli/main.ts', 'src/cli/commands/daemon.ts');
  const packages = modules.flatMap(file => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(file)?.[1] ?? []);
  // semver is part of the chunk, and run when a list has several versions.
  const known = ['prom-client', '@opentelemetry/api', 'tdigest', 'bintrees', 'semver'];
  expect([...new Set(packages)].filter(name => !known.includes(name))).toEqual([]);
});

/** The chunks that are loaded together with modules that begin one. */
function chunksOf(...modules: readonly string[]): string[] {
  const found = new Set<string>();
  const visit = (file: string): void => {
    if (found.has(file)) return;
    found.add(file);
    for (const { path: to, kind } of outputs[file]?.imports ?? [])
      if (kind === 'import-statement' && to in outputs) visit(to);
  };
  for (const module of modules) {
    const [file] = Object.entries(outputs).find(([, { entryPoint }]) => entryPoint?.endsWith(module)) ?? [];
    if (file === undefined) throw new Error(`Cannot find the chunk that begins with "${module}"`);
    visit(file);
  }
  return [...found];
}

function modulesOf(...modules: readonly string[]): string[] {
  const inputs = chunksOf(...modules).flatMap(file => Object.keys(outputs[file]?.inputs ?? {}));
  return inputs.map(file => path.relative(ROOT, path.resolve(ROOT, file)));
}
