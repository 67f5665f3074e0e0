// How do the executables in dist/bin come to be?
//
// One binary, compiled once and hard-linked under every name (design: "one binary, many names").
// What each option is worth, as the median of 60 interleaved cold starts of a program that validates one
// request with zod/mini behind one import() per name (two cores, Bun 1.4.5; an empty program: 3.0 ms):
//
//   minify                            24.9 ms   every import() target is evaluated from the one chunk
//   minify + bytecode                  9.0 ms
//   minify + splitting                 7.5 ms
//   minify + splitting + bytecode      4.9 ms
//     and jitPolicy 100                4.6 ms   less tier-up work in code that runs once; the long-lived
//                                               daemon goes back with Bun.unsafe.setJITPolicy(1)
//     and execArgv --smol              +0.4 ms  any baked-in argument costs its parsing: none is used
//     and bytecodeOrder                +0.0 ms  not worth a second build

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import type { BunPlugin } from 'bun';
import { buildLibrary } from './build-library.ts';
import { PLUGIN_NAMES, RUNNER_NAME } from './names.ts';
import { renderSchemas } from './schemas.ts';

const ROOT = path.resolve(import.meta.dir, '..');
const LOCK_DEADLINE_MS = 120_000;

/** What to build, and where to put it; everything has the repository's own value as default. */
export interface BuildOptions {
  /** The module that looks at the called name; default `plugins/main.ts`. */
  readonly entry?: string;
  /** The directory that gets `bin/`, `lib/`, `types/` and `schemas/`; default `dist`. */
  readonly outDir?: string;
  /** Build even when no input changed. */
  readonly force?: boolean;
}

/**
 * Compiles the executables and what the npm package needs, unless nothing they are made of has changed.
 * Names appear under their final path only when complete, so a running chain never meets half a file.
 *
 * @returns whether anything was built
 */
async function build(options: BuildOptions = {}): Promise<boolean> {
  const entry = path.resolve(options.entry ?? path.join(ROOT, 'plugins/main.ts'));
  const outDir = path.resolve(options.outDir ?? path.join(ROOT, 'dist'));
  if (!fs.existsSync(entry)) throw new Error(`Cannot build the executables: "${entry}" does not exist`);
  fs.mkdirSync(path.join(outDir, 'bin'), { recursive: true });

  const unlock = await lock(path.join(outDir, '.build-lock'));
  try {
    const stamp = path.join(outDir, '.inputs');
    const inputs = hashInputs(entry);
    if (!options.force && readIfThere(stamp) === inputs && isComplete(outDir)) return false;
    await compileExecutables(entry, path.join(outDir, 'bin'));
    await buildLibrary(outDir);
    fs.writeFileSync(stamp, inputs);
    return true;
  } finally {
    unlock();
  }
}

async function compileExecutables(entry: string, binDir: string): Promise<void> {
  const fresh = path.join(binDir, `.${RUNNER_NAME}-${process.pid}`);
  try {
    await compile(entry, fresh);
    for (const name of [RUNNER_NAME, ...PLUGIN_NAMES]) {
      const link = `${fresh}-link`;
      fs.linkSync(fresh, link);
      fs.renameSync(link, path.join(binDir, name));
    }
  } finally {
    fs.rmSync(fresh, { force: true });
  }
}

/**
 * Compiles one executable.
 * @param runtime the Bun executable that it is to carry; this process's own unless given
 */
export async function compile(entry: string, outfile: string, runtime?: string): Promise<void> {
  await Bun.build({
    entrypoints: [entry],
    target: 'bun',
    format: 'esm',
    minify: true,
    splitting: true,
    bytecode: true,
    plugins: [finishedSchemas, execaWithoutStreams()],
    compile: {
      outfile,
      ...(runtime === undefined ? {} : { executablePath: runtime }),
      jitPolicy: 100,
      // Links run as root in a directory they do not choose: nothing found there may change what they do.
      autoloadDotenv: false,
      autoloadBunfig: false,
      autoloadTsconfig: false,
      autoloadPackageJson: false,
    },
  });
}

/** Schemas take their words from the sources' comments, which are not in the executable. */
const finishedSchemas: BunPlugin = {
  name: 'finished schemas',
  setup(builder) {
    builder.onLoad({ filter: /\/plugins\/published-schemas\.ts$/ }, () => ({
      loader: 'ts',
      contents: `export const SCHEMAS = ${JSON.stringify(renderSchemas())};`,
    }));
  },
};

/**
 * execa makes the process's own standard streams when it is loaded, to recognise them among a child's. Links only ever
 * get pipes, so that there is nothing to recognise: 1 ms less for every start of the tool. The library is left alone.
 */
function execaWithoutStreams(): BunPlugin {
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
        // Another version of execa may keep something else there.
        const known = exported.every(name => contents.includes(`export const ${name} `));
        return { loader: 'js', contents: known ? contents : source };
      });
    },
  };
}

function isComplete(outDir: string): boolean {
  const library = ['lib/index.js', 'types/index.d.ts', 'schemas/conflist.json'];
  if (!library.every(file => fs.existsSync(path.join(outDir, file)))) return false;
  const inodes = [RUNNER_NAME, ...PLUGIN_NAMES].map(name => {
    return fs.statSync(path.join(outDir, 'bin', name), { throwIfNoEntry: false })?.ino;
  });
  return inodes.every(inode => inode !== undefined && inode === inodes[0]);
}

function hashInputs(entry: string): string {
  const hash = createHash('sha256').update(`${Bun.version} ${Bun.revision} ${process.arch} ${entry}\n`);
  const files = ['src', 'plugins'].flatMap(folder => {
    return fs
      .readdirSync(path.join(ROOT, folder), { recursive: true, encoding: 'utf8' })
      .filter(name => /\.(ts|json|txt|proto)$/.test(name))
      .map(name => path.join(folder, name));
  });
  const roots = ['package.json', 'package-lock.json', 'tsconfig.json'];
  for (const file of [...files.sort(), ...roots, path.relative(ROOT, entry)]) {
    hash
      .update(`${file}\0`)
      .update(fs.readFileSync(path.join(ROOT, file)))
      .update('\0');
  }
  return hash.digest('hex');
}

function readIfThere(file: string): string | undefined {
  return fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : undefined;
}

// Two builds at once would leave names pointing to different binaries, and links recognise each other by inode.
async function lock(file: string): Promise<() => void> {
  const deadline = Date.now() + LOCK_DEADLINE_MS;
  while (!tryLock(file)) {
    if (!isAlive(Number(readIfThere(file)))) fs.rmSync(file, { force: true });
    else if (Date.now() > deadline) {
      throw new Error(`Cannot build the executables: "${file}" is held by process "${readIfThere(file)}"`);
    } else await Bun.sleep(50);
  }
  return () => fs.rmSync(file, { force: true });
}

function tryLock(file: string): boolean {
  const own = `${file}-${process.pid}`;
  fs.writeFileSync(own, String(process.pid));
  try {
    fs.linkSync(own, file);
    return true;
  } catch {
    return false;
  } finally {
    fs.rmSync(own);
  }
}

function isAlive(pid: number): boolean {
  return Number.isInteger(pid) && pid > 0 && fs.existsSync(`/proc/${pid}`);
}

function describe(cause: unknown): string {
  const at = (cause as Partial<BuildMessage>).position;
  const message = cause instanceof Error || at ? (cause as Error).message : String(cause);
  return at ? `${at.file}:${at.line}:${at.column}: ${message}` : message;
}

if (import.meta.main) {
  const value = (flag: string): string | undefined => {
    const at = process.argv.indexOf(flag);
    return at < 0 ? undefined : process.argv[at + 1];
  };
  const entry = value('--entry');
  const outDir = value('--out-dir');
  const started = performance.now();
  try {
    const built = await build({
      ...(entry === undefined ? {} : { entry }),
      ...(outDir === undefined ? {} : { outDir }),
      force: process.argv.includes('--force'),
    });
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    process.stderr.write(built ? `built dist/bin in ${seconds} s\n` : 'dist/bin is up to date\n');
  } catch (error) {
    const causes: unknown[] = error instanceof AggregateError ? error.errors : [error];
    process.stderr.write(`${causes.map(describe).join('\n')}\n`);
    process.exit(1);
  }
}
