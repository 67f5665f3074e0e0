// How is the front compiled, for this system or another one? (plugins/front/README.md)
import fs from 'node:fs';
import path from 'node:path';
import { CORE_NAME, RUN_DIR, RUN_DIR_VARIABLE } from '../../src/cni/directories.ts';
import {
  ANSWER_DEADLINE_MS,
  BUSY_MS,
  callsFilesOf,
  DAEMON_COMMANDS,
  DAEMON_VERBS,
  ENGINE_SETTINGS,
  JUDGE_FLAG,
  JUDGED,
  SERVED_VARIABLE,
  SILENCE_MS,
  socketPathOf,
  UNANSWERED_VARIABLE,
  wireOf,
} from '../../src/daemon/protocol.ts';
import { WIRE } from '../../src/daemon/wire.ts';
import { SEND_FLAG } from '../../src/plugin/delete-devices.ts';
import { aboutText } from '../../src/plugin/run.ts';
import { versionText } from '../../src/plugin/serve.ts';
import { REQUEST_LIMIT_BYTES } from '../../src/plugin/stdio.ts';
import { FAULT_VARIABLE } from '../../src/sys/fault.ts';
import { WORKER_FLAG } from '../../src/worker/protocol.ts';
import { AS_FLAG, PLUGIN_NAMES, PLUGINS, RUNNER, RUNNER_ALIASES, RUNNER_NAME } from '../registry.ts';
import { releaseOf } from '../release.ts';

const SOURCE = path.resolve(import.meta.dir, '../front/front.c');
const COMPILE_DEADLINE_MS = 120_000;

/** Processors that the front is written for, as compilers name them. */
const TRIPLES = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' } as const;

/** No C library, no relocations, and the same bytes wherever it is compiled. */
const FLAGS = [
  ...['-std=c11', '-Os', '-Wall', '-Wextra', '-Werror', '-Wno-unused-command-line-argument'],
  ...['-static', '-nostdlib', '-ffreestanding', '-fno-stack-protector', '-fno-pie', '-no-pie'],
  ...['-fno-asynchronous-unwind-tables', '-s', '-Wl,--build-id=none'],
];

/** A command line to which flags and files are appended. */
type Compiler = readonly string[];

/**
 * Compiles the front with the first compiler that is installed.
 * @param workDir gets the generated tables
 * @param arch default: that of this process
 */
export async function compileFront(
  outfile: string,
  workDir: string,
  arch: string = process.arch,
): Promise<{ readonly by: string } | { readonly problem: string }> {
  const compilers = findCompilers(arch);
  if (compilers.length === 0) return { problem: `there is no C compiler for ${arch}: ${adviceFor(arch)}` };
  fs.mkdirSync(workDir, { recursive: true });
  fs.writeFileSync(path.join(workDir, 'tables.h'), await renderTables());
  const problems: string[] = [];
  for (const compiler of compilers) {
    const argv = [...compiler, ...FLAGS, '-I', workDir, SOURCE, '-o', outfile];
    const { exitCode, stderr } = Bun.spawnSync(argv, { timeout: COMPILE_DEADLINE_MS });
    if (exitCode === 0) return { by: compiler.join(' ') };
    problems.push(`${compiler.join(' ')}: ${stderr.toString().trim() || `exit code ${exitCode}`}`);
  }
  return { problem: problems.join('\n') };
}

/** The compilers that are installed for a processor, in the order in which they are tried. */
export function findCompilers(arch: string): readonly Compiler[] {
  if (arch !== 'x64' && arch !== 'arm64') return [];
  const triple = TRIPLES[arch];
  const native: readonly Compiler[] = arch === process.arch ? [['cc'], ['gcc'], ['clang']] : [];
  const all: readonly Compiler[] = [
    ...native,
    [`${triple}-gcc`],
    ['clang', `--target=${triple}`, '-fuse-ld=lld'],
    ['zig', 'cc', '-target', triple.replace('gnu', 'musl')],
  ];
  return all.filter(([program = '']) => Bun.which(program) !== null);
}

function adviceFor(arch: string): string {
  if (arch !== 'x64' && arch !== 'arm64') return 'the front is not written for it';
  const own = arch === process.arch ? 'gcc' : `gcc-${TRIPLES[arch].replace('_', '-')}`;
  return `install ${own}, clang and lld, or zig`;
}

/** What the front knows of the rest, as a C header. */
export async function renderTables(): Promise<string> {
  const runner = { name: RUNNER_NAME, plugin: '', definition: await RUNNER.load() };
  const plugins = await Promise.all(
    PLUGIN_NAMES.map(async name => ({ name, plugin: name, definition: await PLUGINS[name].load() })),
  );
  const aliases = RUNNER_ALIASES.map(name => ({ ...runner, name }));
  const rows = [...plugins, runner, ...aliases].map(({ name, plugin, definition }) => {
    const about = aboutText(definition, releaseOf(plugin || RUNNER_NAME));
    const texts = [name, plugin, versionText(definition), about].map(quote);
    return `  { ${texts.join(', ')}, ${name === RUNNER_NAME ? 1 : 0} },\n`;
  });
  const numbers = {
    ...WIRE,
    ...{ REQUEST_LIMIT_BYTES, SILENCE_MS, ANSWER_DEADLINE_MS, BUSY_MS },
    ...{ JUDGED_DECLINED: JUDGED.declined, JUDGED_LOST: JUDGED.lost },
    // The core's own deadlines end long before.
    JUDGE_DEADLINE_MS: 30_000,
    // The core then asks again, with the deadline of the probe.
    PROBE_MS: 250,
    // A reader that takes nothing for that long is not waited for.
    WRITE_DEADLINE_MS: 60_000,
  };
  const texts = {
    ...{
      CORE_NAME,
      RUN_DIR,
      RUN_DIR_VARIABLE,
      SERVED_VARIABLE,
      FAULT_VARIABLE,
      UNANSWERED_VARIABLE,
      JUDGE_FLAG,
      SEND_FLAG,
    },
    // Both begin with a slash, after the run directory.
    WIRE_NAME: wireOf(socketPathOf('')),
    CALLS_NAME: callsFilesOf(socketPathOf('')),
  };
  const lists = { DAEMON_VERBS, DAEMON_COMMANDS, INTERNAL_FLAGS: [WORKER_FLAG, JUDGE_FLAG, AS_FLAG] };
  return [
    '/* Generated by plugins/build/front.ts. */\n',
    ...Object.entries(numbers).map(([name, value]) => `#define ${name} ${value}\n`),
    ...Object.entries(texts).map(([name, text]) => `#define ${name} ${quote(text)}\n`),
    ...Object.entries(lists).map(([name, list]) => {
      return `static const char *const ${name}[] = { ${list.map(quote).join(', ')}, 0 };\n`;
    }),
    '/* Variables of a daemon for the engine, and how they are set. */\n',
    'static const struct { const char *name, *setting; } ENGINE_SETTINGS[] = {\n',
    ...Object.entries(ENGINE_SETTINGS).map(
      ([name, value]) => `  { ${quote(name)}, ${quote(`${name}=${value}`)} },\n`,
    ),
    '  { 0, 0 },\n};\n',
    '/* Name of the executable, plugin that it is to the daemon, VERSION, about text, and whether it is the command, too. */\n',
    'typedef struct { const char *name, *plugin, *version, *about; int is_command; } Told;\n',
    `static const Told TOLD[] = {\n${rows.join('')}  { 0, 0, 0, 0, 0 },\n};\n`,
  ].join('');
}

/** A string literal in C: the texts are ASCII, and JSON escapes what C does. */
function quote(text: string): string {
  if (!/^[\n -~]*$/.test(text))
    throw new Error(`Cannot write ${JSON.stringify(text)} into the front's tables`);
  return JSON.stringify(text);
}
