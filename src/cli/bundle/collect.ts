// What does a maintainer need to know about a node that misbehaves?
import { readdirSync, statSync } from 'node:fs';
import { arch, version as kernelVersion, release } from 'node:os';
import { join } from 'node:path';
import { readFilter, readKernelLines } from '../../bundle/kernel-state.ts';
import type { BundleFile } from '../../bundle/pack.ts';
import { cacheDirOf } from '../../chain/run/runtime.ts';
import { RUN_DIR_VARIABLE, runDir } from '../../cni/directories.ts';
import { tryRead } from '../../files/read-file.ts';
import { SERVICE_UNIT } from '../../install/units.ts';
import { readConfigured } from '../../runtimes/configured.ts';
import type { CommandCall } from '../command.ts';
import { confDirOf, runtimeOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';
import { traceDirFor } from '../watched.ts';

/** Where the facts are read. */
export interface BundlePlaces {
  readonly confDir: string;
  readonly pluginDirs: readonly string[];
  readonly cacheDir: string;
  readonly stateDir: string;
  readonly runDir: string;
  readonly traceDir: string;
}

/** The directories of the command line. */
export function placesOf(call: CommandCall): BundlePlaces {
  const runtime = runtimeOf(call);
  return {
    confDir: confDirOf(call),
    pluginDirs: runtime.pluginDirs,
    cacheDir: cacheDirOf(runtime),
    stateDir: runtime.stateDir ?? '',
    runDir: runDir(call.env),
    traceDir: traceDirFor(call),
  };
}

/** Command lines whose answers are part of a report, each with its file. */
const QUESTIONS: readonly (readonly [file: string, ...args: string[]])[] = [
  ['doctor.txt', 'doctor', '--all'],
  ['ls.txt', 'ls', '--all'],
  ['node.json', 'ls', '--all', '--json'],
  ['tree.txt', 'ls', '--output', 'tree'],
  ['networks.txt', 'networks', '--why'],
  ['unsettled.txt', 'ls', '--unsettled'],
  ['log.txt', 'log', '--since', '30d'],
  ['requests.txt', 'log', '--requests'],
  ['daemon.txt', 'daemon', '--status'],
];

/** A command that asks plugins ends within their deadline; this is for one that does not. */
const ANSWER_MS = 90_000;

/** The answers of our own commands. @param onAsk called with each command line */
export async function askCommands(
  call: CommandCall,
  places: BundlePlaces,
  onAsk: (line: string) => void,
): Promise<BundleFile[]> {
  const env = {
    ...call.env,
    NETCONFPATH: places.confDir,
    CNI_PATH: places.pluginDirs.join(':'),
    CATENA_CNI_CACHE_DIR: places.cacheDir,
    CATENA_STATE_DIR: places.stateDir,
    CATENA_TRACE_DIR: places.traceDir,
    [RUN_DIR_VARIABLE]: places.runDir,
    COLUMNS: '120',
    NO_COLOR: '1',
  };
  const files: BundleFile[] = [];
  for (const [name, ...args] of QUESTIONS) {
    const line = `catena ${args.join(' ')}`;
    onAsk(line);
    let text = '';
    // Warnings would break JSON; they are in the same command's text.
    const write = (fd: 1 | 2, part: string) => {
      if (fd === 1 || !name.endsWith('.json')) text += part;
    };
    const signal = AbortSignal.any([call.signal, AbortSignal.timeout(ANSWER_MS)]);
    const { plugins, workers } = call;
    const surroundings = { plugins, env, write, signal, ...(workers ? { workers } : {}) };
    const code = await Promise.race([call.runCommand(args, surroundings), lateness(signal)]);
    files.push({ name, what: `"${line}", exit code ${code ?? `none within ${ANSWER_MS / 1000} s`}`, text });
  }
  return files;
}

function lateness(signal: AbortSignal): Promise<undefined> {
  return new Promise(resolve => {
    signal.addEventListener('abort', () => resolve(undefined), { once: true });
  });
}

/** What files and the kernel say. */
export function readFacts(call: CommandCall, places: BundlePlaces, anonymous: boolean): BundleFile[] {
  return [
    json('versions.json', 'versions', () => ({
      catena: TOOL_VERSION,
      plugins: call.plugins.types,
      kernel: release(),
      built: kernelVersion(),
      architecture: arch(),
      system: tryRead('/etc/os-release'),
    })),
    json('places.json', 'directories, and names of variables in the environment', () => ({
      ...places,
      variables: Object.keys(call.env).filter(name => /^(CNI_|CATENA_|OTEL_|NETCONFPATH)/.test(name)),
    })),
    json('executables.json', 'files of the plugin directories', () => places.pluginDirs.map(describeDir)),
    json('runtimes.json', 'what container runtimes are configured to use', () => readConfigured('/etc')),
    text('kernel.txt', 'the host as the kernel has it', () => `${readKernelLines().join('\n')}\n`),
    anonymous
      ? text('filter.json', 'left out: rules contain addresses as bytes', () => '')
      : json('filter.json', 'every rule of nf_tables', readFilter),
    ...filesBelow('conflists', places.confDir, /\.(conflist|conf|json)$/),
    ...filesBelow('settings', '/etc/systemd/system', new RegExp(`^(${SERVICE_UNIT}|catena\\.socket)$`)),
    ...settingsFile(call),
    ...filesBelow('journal', places.stateDir, /./),
    ...filesBelow('results', join(places.cacheDir, 'results'), /./),
    ...filesBelow('traces', places.traceDir, /\.json$/, MAX_TRACES),
  ];
}

/** More are rarely read, and make the archive large. */
const MAX_TRACES = 50;
const MAX_FILES = 500;

function settingsFile(call: CommandCall): BundleFile[] {
  const path = call.text('config');
  return path === undefined
    ? []
    : [text('settings/daemon.json', `settings of the daemon, "${path}"`, () => tryRead(path) ?? '')];
}

/** The newest files of a directory and those below it. */
function filesBelow(kind: string, dir: string, wanted: RegExp, max = MAX_FILES): BundleFile[] {
  let names: string[];
  try {
    names = readdirSync(dir, { recursive: true, encoding: 'utf8' });
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    return code === 'ENOENT' ? [] : [text(`${kind}/unreadable.txt`, `"${dir}"`, () => message)];
  }
  const files = names
    .filter(name => wanted.test(name))
    .flatMap(name => {
      const stat = statSync(join(dir, name), { throwIfNoEntry: false });
      return stat?.isFile() ? [{ name, at: stat.mtimeMs }] : [];
    })
    .sort((a, b) => b.at - a.at)
    .slice(0, max);
  return files.map(({ name }) =>
    text(`${kind}/${name}`, `"${join(dir, name)}"`, () => tryRead(join(dir, name)) ?? '(cannot be read)'),
  );
}

function describeDir(dir: string): unknown {
  const names = filesBelow('', dir, /^[^/]+$/).map(({ name }) => name.slice(1));
  return {
    dir,
    files: names.map(name => {
      const { size, mode, mtime, ino } = statSync(join(dir, name));
      return { name, size, mode: mode.toString(8), changed: mtime, inode: ino };
    }),
  };
}

function json(name: string, what: string, read: () => unknown): BundleFile {
  return text(name, what, () => `${JSON.stringify(read(), null, 2)}\n`);
}

/** What cannot be read is a fact as well. */
function text(name: string, what: string, read: () => string): BundleFile {
  try {
    return { name, what, text: read() };
  } catch (error) {
    return { name, what: `${what} (it could not be read)`, text: `${(error as Error).message}\n` };
  }
}
