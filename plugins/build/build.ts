// How are the executables in dist/bin built?
// Two programs: the Bun program, compiled once ("catena-core"), and the front (plugins/front), hard-linked under every name. Without
// a C compiler, the Bun program has every name.
//
// The effect of each option, as the median of 60 interleaved cold starts of a program that validates one
// request with zod/mini behind one import() per name (two cores, Bun 1.4.5; an empty program: 3.0 ms):
//
//   minify                            24.9 ms   every import() target is evaluated from the one chunk
//   minify + bytecode                  9.0 ms
//   minify + splitting                 7.5 ms
//   minify + splitting + bytecode      4.9 ms
//     and jitPolicy 100                4.6 ms   less tier-up work in code that runs once; the long-lived
//                                               daemon restores it with Bun.unsafe.setJITPolicy(1)
//     and execArgv --                  +0.0 ms  see EXEC_ARGV
//     and execArgv --smol              +0.4 ms
//     and bytecodeOrder                +0.0 ms  not worth a second build
//
// What our modules cost a start over the empty program, processor time on a machine at 40 % of that speed: tuning 20.2 ms,
// bridge 24.4; without zod in its way (quick-zod/) 15.9 and 17; with fewer chunks (chunks.ts) 12.3 and 16.9.

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import type { BunPlugin } from 'bun';
import manifest from '../../package.json' with { type: 'json' };
import { CORE_NAME } from '../../src/cni/directories.ts';
import { type ArchiveEntry, packArchive } from '../../src/files/archive.ts';
import { tryRead } from '../../src/files/read-file.ts';
import { findFlockHolder, holdFlock } from '../../src/sys/flock.ts';
import { bundlePage } from '../../src/ui/bundle.ts';
import { PLUGIN_NAMES, RUNNER_NAME } from '../registry.ts';
import { renderAnswerSchemas } from './answer-schemas.ts';
import { buildLibrary } from './build-library.ts';
import { joinChunks } from './chunks.ts';
import { compileFront, findCompilers } from './front.ts';
import { renderSchemas } from './schemas.ts';

const ROOT = path.resolve(import.meta.dir, '../..');
const LOCK_DEADLINE_MS = 120_000;

/**
 * Arguments for Bun itself that are embedded in the executable: none, but stated explicitly.
 *
 * Without such arguments, a compiled program exits before its first line if getcwd(2) fails: in a deleted or unmounted directory,
 * or in one whose path is longer than PATH_MAX. With any argument, Bun runs its argument parser, which does not need the
 * directory, and the process stays in it: relative paths still resolve as the kernel says (`--cwd=/` would lose that, and `PWD`
 * may be wrong). `--` also ends the options for Bun, so `BUN_OPTIONS` in the caller's environment (`--preload`, `--cwd`) has no
 * effect.
 */
const EXEC_ARGV = ['--'];

/** The module that dispatches on the called name. */
const ENTRY = path.join(ROOT, 'plugins/main.ts');

/** Gets `bin/`, `lib/`, `types/` and `schemas/`. */
const DIST = path.join(ROOT, 'dist');

/**
 * Compiles the executables and the contents of the npm package, unless their inputs are unchanged. Names appear under their final
 * path only when complete, so a running chain never executes half a file.
 * @returns whether anything was built, and why there is no front
 */
async function build(): Promise<{ built: boolean; problem?: string }> {
  fs.mkdirSync(path.join(DIST, 'bin'), { recursive: true });
  const unlock = await lock(path.join(DIST, '.build-lock'));
  try {
    const stamp = path.join(DIST, '.inputs');
    const inputs = hashInputs();
    if (tryRead(stamp) === inputs && isComplete()) return { built: false };
    const problem = await compileExecutables(await buildPackage(DIST));
    fs.writeFileSync(stamp, inputs);
    return { built: true, ...(problem === undefined ? {} : { problem }) };
  } finally {
    unlock();
  }
}

/**
 * Builds the npm package below a directory.
 * @returns the packed package, for {@link compile}
 */
export async function buildPackage(outDir: string): Promise<string> {
  await buildLibrary(outDir);
  return packLibrary(outDir);
}

/** @returns why there is no front; undefined if there is one */
async function compileExecutables(library: string): Promise<string | undefined> {
  const binDir = path.join(DIST, 'bin');
  const core = path.join(binDir, `.${CORE_NAME}-${process.pid}`);
  const front = `${core}-front`;
  const link = `${core}-link`;
  try {
    const compiled = await compileFront(front, path.join(DIST, 'front'));
    const hasFront = !('problem' in compiled);
    await compile(core, { library, front: hasFront ? front : undefined });
    // The Bun program first: a front without it is of no use.
    for (const name of [CORE_NAME, RUNNER_NAME, ...PLUGIN_NAMES]) {
      fs.linkSync(hasFront && name !== CORE_NAME ? front : core, link);
      fs.renameSync(link, path.join(binDir, name));
    }
    return hasFront ? undefined : compiled.problem;
  } finally {
    for (const file of [core, front, link]) fs.rmSync(file, { force: true });
  }
}

/** What one executable contains besides the entry and what it imports. */
interface CompileOptions {
  /** Our packed npm package. */
  readonly library: string;
  /** The front that belongs to it, which it recognises as ours. */
  readonly front: string | undefined;
  /** The Bun executable to embed; default: that of this process. */
  readonly runtime?: string;
}

export async function compile(outfile: string, { library, front, runtime }: CompileOptions): Promise<void> {
  await Bun.build({
    entrypoints: [ENTRY],
    target: 'bun',
    format: 'esm',
    minify: true,
    splitting: true,
    bytecode: true,
    plugins: [
      schemasPlugin,
      await finishedPage(),
      quickZod,
      libraryPlugin(library),
      frontPlugin(front),
      streamlessExecaPlugin(),
      chunksPlugin(),
    ],
    compile: {
      outfile,
      ...(runtime === undefined ? {} : { executablePath: runtime }),
      execArgv: EXEC_ARGV,
      jitPolicy: 100,
      // Plugins run as root in a directory that they do not choose: no file found there may change their behaviour.
      autoloadDotenv: false,
      autoloadBunfig: false,
      autoloadTsconfig: false,
      autoloadPackageJson: false,
    },
  });
}

function isComplete(): boolean {
  const library = ['lib/index.js', 'types/index.d.ts', 'schemas/conflist.json'];
  if (!library.every(file => fs.existsSync(path.join(DIST, file)))) return false;
  const inodes = [CORE_NAME, RUNNER_NAME, ...PLUGIN_NAMES].map(name => {
    return fs.statSync(path.join(DIST, 'bin', name), { throwIfNoEntry: false })?.ino;
  });
  // Every name but the first is one file: the front, or without a compiler the Bun program.
  return inodes.every((inode, i) => inode !== undefined && (i === 0 || inode === inodes[1]));
}

function hashInputs(): string {
  const compilers = findCompilers(process.arch).join();
  const hash = createHash('sha256').update(
    `${Bun.version} ${Bun.revision} ${process.arch} ${compilers} ${ENTRY}\n`,
  );
  const files = ['src', 'plugins'].flatMap(folder => {
    return fs
      .readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter(name => /\.(tsx?|css|json|txt|proto|c)$/.test(name))
      .map(name => path.join(folder, name));
  });
  const roots = ['package.json', 'package-lock.json', 'tsconfig.json'];
  for (const file of [...files.sort(), ...roots]) {
    hash
      .update(`${file}\0`)
      .update(fs.readFileSync(path.join(ROOT, file)))
      .update('\0');
  }
  return hash.digest('hex');
}

// Two concurrent builds would leave fronts beside a Bun program that does not recognise them.
async function lock(file: string): Promise<() => void> {
  for (const deadline = Date.now() + LOCK_DEADLINE_MS; ; ) {
    const unlock = holdFlock(file);
    if (unlock) return unlock;
    if (Date.now() > deadline) {
      const holder = findFlockHolder(fs.statSync(file)) ?? 'another process';
      throw new Error(
        `Cannot build the executables: "${file}" is held by ${holder}; wait until it has built`,
      );
    }
    await Bun.sleep(50);
  }
}

function describe(cause: unknown): string {
  const at = (cause as Partial<BuildMessage>).position;
  const message = cause instanceof Error || at ? (cause as Error).message : String(cause);
  return at ? `${at.file}:${at.line}:${at.column}: ${message}` : message;
}

/** The part of `files` in package.json that building a plugin needs. The rest is documentation. */
const SOURCES = ['package.json', 'LICENSE', 'src', 'plugins'] as const;
const BUILT = ['lib', 'types', 'schemas'] as const;

/** 2000-01-01: equal inputs produce an identical archive. */
const TIME = 946_684_800;

/**
 * Packs the npm package in the layout of `npm pack`.
 * @param builtDir holds `lib/`, `types/` and `schemas/`, and gets the archive
 * @returns the path of the archive
 */
function packLibrary(builtDir: string): string {
  const entries = [
    ...SOURCES.flatMap(name => entriesOf(path.join(ROOT, name), `package/${name}`)),
    ...BUILT.flatMap(name => entriesOf(path.join(builtDir, name), `package/dist/${name}`)),
  ];
  const archive = path.join(builtDir, `${manifest.name}-${manifest.version}.tgz`);
  fs.writeFileSync(`${archive}.new`, packArchive(entries, TIME));
  fs.renameSync(`${archive}.new`, archive);
  return archive;
}

function entriesOf(file: string, name: string): ArchiveEntry[] {
  const stat = fs.statSync(file);
  if (!stat.isDirectory()) {
    return [{ name, mode: stat.mode & 0o100 ? 0o755 : 0o644, content: fs.readFileSync(file) }];
  }
  const names = fs.readdirSync(file).sort();
  return names.flatMap(one => entriesOf(path.join(file, one), `${name}/${one}`));
}

/** Descriptions in schemas come from the sources' comments, which are not part of the executable. */
const schemasPlugin: BunPlugin = {
  name: 'finished schemas',
  setup(builder) {
    builder.onLoad({ filter: /\/plugins\/build\/published-schemas\.ts$/ }, async () => ({
      loader: 'ts',
      contents: `export const SCHEMAS = ${JSON.stringify(await renderSchemas())};
export const ANSWER_SCHEMAS = ${JSON.stringify(renderAnswerSchemas())};`,
    }));
  },
};

/** The sources of the page are for browsers. It is bundled before: a plugin that began a bundle itself would wait for its own end. */
async function finishedPage(): Promise<BunPlugin> {
  const contents = `export const PAGE = ${JSON.stringify(await bundlePage())};`;
  return {
    name: 'finished page',
    setup(builder) {
      builder.onLoad({ filter: /\/src\/ui\/bundled-page\.ts$/ }, () => ({ loader: 'ts', contents }));
    },
  };
}

const QUICK_ZOD = path.join(import.meta.dir, 'quick-zod/zod-mini.ts');
const FULL_ZOD = path.join(import.meta.dir, 'quick-zod/full.ts');

/** Zod's place is taken by quick-zod/, which loads zod itself where it is needed. */
export const quickZod: BunPlugin = {
  name: 'quick zod',
  setup(builder) {
    builder.onResolve({ filter: /^zod\/mini$/ }, ({ importer }) => {
      return importer === FULL_ZOD ? undefined : { path: QUICK_ZOD };
    });
  },
};

export function chunksPlugin(): BunPlugin {
  return joinChunks(ENTRY, name => (name === 'zod/mini' ? QUICK_ZOD : undefined));
}

/** The packed package becomes a file inside the executable. */
function libraryPlugin(file: string): BunPlugin {
  const contents = `export { default as PACKED_LIBRARY } from ${JSON.stringify(path.resolve(file))} with { type: 'file' };`;
  return {
    name: 'packed library',
    setup(builder) {
      builder.onLoad({ filter: /\/src\/cli\/init\/packed-library\.ts$/ }, () => ({ loader: 'ts', contents }));
    },
  };
}

/** The Bun program recognises its front by the digest of its content. */
function frontPlugin(file: string | undefined): BunPlugin {
  const bytes = file === undefined ? undefined : fs.readFileSync(file);
  const digest = bytes && new Bun.CryptoHasher('sha256').update(bytes).digest('hex');
  const contents = bytes
    ? `export const FRONT = {
  bytes: ${bytes.length},
  sha256: '${digest}',
  digestOf: content => new Bun.CryptoHasher('sha256').update(content).digest('hex'),
};`
    : 'export const FRONT = undefined;';
  return {
    name: 'built front',
    setup(builder) {
      const filter = /\/src\/chain\/config\/front-program\.ts$/;
      builder.onLoad({ filter }, () => ({ loader: 'ts', contents }));
    },
  };
}

/**
 * When loaded, execa creates the process's own standard streams, to recognize them among a child's. Plugins only ever get pipes,
 * so there is nothing to recognize; this saves 1 ms in every start of the tool. The library itself is not modified.
 */
function streamlessExecaPlugin(): BunPlugin {
  const contents = [
    'export const isStandardStream = () => false;',
    'export const STANDARD_STREAMS = [];',
    "export const STANDARD_STREAMS_ALIASES = ['stdin', 'stdout', 'stderr'];",
    "export const getStreamName = fd => STANDARD_STREAMS_ALIASES[fd] ?? 'stdio[' + fd + ']';",
  ].join('\n');
  return {
    name: 'execa without standard streams',
    setup(builder) {
      const filter = /\/execa\/lib\/utils\/standard-stream\.js$/;
      builder.onLoad({ filter }, ({ path: file }) => {
        const source = fs.readFileSync(file, 'utf8');
        const exported = [...source.matchAll(/^export const (\w+)/gm)].map(([, name]) => name);
        // Another version of execa may export more from this module.
        const known = exported.every(name => contents.includes(`export const ${name} `));
        return { loader: 'js', contents: known ? contents : source };
      });
    },
  };
}

if (import.meta.main) {
  const started = performance.now();
  try {
    const { built, problem } = await build();
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    if (problem !== undefined)
      process.stderr.write(
        `dist/bin has no native front, so every name is the Bun program, which asks no daemon: ${problem}\n`,
      );
    process.stderr.write(built ? `built dist/bin in ${seconds} s\n` : 'dist/bin is up to date\n');
  } catch (error) {
    const causes: unknown[] = error instanceof AggregateError ? error.errors : [error];
    process.stderr.write(`${causes.map(describe).join('\n')}\n`);
    process.exit(1);
  }
}
