// What does `catena doctor --bundle` do?
import { once } from 'node:events';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { arch, hostname, version as kernelVersion, release } from 'node:os';
import { join } from 'node:path';
import { RUN_DIR_VARIABLE } from '../../cni/directories.ts';
import { attempt } from '../../cni/errors.ts';
import { type ArchiveEntry, packArchive } from '../../files/archive.ts';
import { putNewFile } from '../../files/put-file.ts';
import { absolutePath, tryRead } from '../../files/read-file.ts';
import { readNetnsState } from '../../lab/state.ts';
import { count } from '../../lab/words.ts';
import { Tables } from '../../netlink/tables.ts';
import { ownNetns } from '../../sys/netns.ts';
import { type CommandCall, TOOL_VERSION } from '../command.ts';
import { SERVICE_UNIT } from '../install/units.ts';
import { placesFor } from '../node/read.ts';
import { printAnswer } from '../output/print.ts';
import { readConfigured } from '../runtimes/configured.ts';
import { traceDirFor } from '../target.ts';
import { openProgress } from '../terminal/progress.ts';
import { findNames, openPseudonyms, redactText } from './redact.ts';

/** Writes an archive for a report, with secrets masked, and shows what is in it. */
export async function run(call: CommandCall): Promise<number> {
  const now = new Date();
  const name = `catena-bundle-${now.toISOString().replaceAll(/[-:]|\.\d+/g, '')}`;
  const file = absolutePath(call.text('bundle') ?? '', call.cwd);
  refuseExisting(file);
  const anonymous = call.on('anonymous');
  const places = { ...placesFor(call), traceDir: traceDirFor(call) };
  const progress = openProgress(call, 'doctor');
  const facts = readFacts(call, places, anonymous);
  const answers = await askCommands(call, places, progress.step).finally(progress.end);
  const read = [...facts, ...answers].map(one => ({ ...one, text: redactText(one.text) }));
  const host = { kind: 'host', names: [hostname()] };
  const hide = anonymous
    ? openPseudonyms([host, ...findNames(read.map(one => one.text))])
    : (text: string) => text;
  const files = read.map(({ name, what, text }) => {
    return { name: hide(name), what: hide(what), text: hide(text) };
  });
  const note = noteOn(anonymous, now);
  const bytes = packBundle(name, files, note, now);
  write(file, bytes);
  const listed = files.map(one => ({ name: one.name, what: one.what, bytes: Buffer.byteLength(one.text) }));
  const answer = { file, bytes: bytes.length, anonymous, files: listed };
  await printAnswer(call, 'Bundle', answer, () => render(file, bytes.length, files, note));
  return 0;
}

function refuseExisting(file: string): void {
  if (existsSync(file))
    throw new Error(`Cannot write "${file}": it exists; remove it, or choose another file`);
}

/** Only its owner may read it: what is masked is what could be recognised. */
function write(file: string, bytes: Uint8Array): void {
  try {
    putNewFile(file, bytes);
  } catch (cause) {
    refuseExisting(file);
    throw new Error(`Cannot write "${file}": ${(cause as Error).message}`, { cause });
  }
}

function noteOn(anonymous: boolean, now: Date): string {
  return [
    `Report of catena ${TOOL_VERSION}, ${now.toISOString()}.`,
    'Masked: values of keys named like secrets, tokens, private keys, certificates, kubeconfig data, and environments.',
    anonymous
      ? 'Replaced, each by the same word in all files: addresses, names of pods, of their namespaces and containers, and of the host.'
      : 'Not replaced: addresses and names (--anonymous replaces them).',
    'Look through it before you send it: a secret that is neither named nor shaped like one cannot be recognised.',
  ].join('\n');
}

function render(file: string, size: number, files: readonly BundleFile[], note: string): string {
  const single = files.filter(({ name }) => !name.includes('/'));
  const kinds = new Set(files.filter(({ name }) => name.includes('/')).map(({ name }) => name.split('/')[0]));
  const width = Math.max(...single.map(({ name }) => name.length));
  return [
    note,
    '',
    ...single.map(({ name, what }) => `  ${name.padEnd(width)}  ${what}`),
    ...[...kinds].map(kind => {
      const inside = files.filter(({ name }) => name.startsWith(`${kind}/`));
      return `  ${`${kind}/`.padEnd(width)}  ${count(inside.length, 'file')}`;
    }),
    '',
    `wrote ${file}: ${files.length + 1} files, ${Math.ceil(size / 1024)} KiB`,
    `look at it: tar -tzf ${file}`,
    '',
  ].join('\n');
}

type BundlePlaces = ReturnType<typeof placesFor> & { readonly traceDir: string };

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
async function askCommands(
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
    const code = await Promise.race([call.runCommand(args, surroundings), once(signal, 'abort')]);
    call.signal.throwIfAborted();
    const ended = typeof code === 'number' ? code : `none within ${ANSWER_MS / 1000} s`;
    files.push({ name, what: `"${line}", exit code ${ended}`, text });
  }
  return files;
}

function readFacts(call: CommandCall, places: BundlePlaces, anonymous: boolean): BundleFile[] {
  const config = call.text('config');
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
    ...(config === undefined
      ? []
      : [text('settings/daemon.json', `settings of the daemon, "${config}"`, () => tryRead(config) ?? '')]),
    ...filesBelow('journal', places.stateDir, /./),
    ...filesBelow('results', join(places.cacheDir, 'results'), /./),
    ...filesBelow('traces', places.traceDir, /\.json$/, MAX_TRACES),
  ];
}

/** More are rarely read, and make the archive large. */
const MAX_TRACES = 50;
const MAX_FILES = 500;

/** The newest files of a directory and those below it. */
function filesBelow(kind: string, dir: string, wanted: RegExp, max = MAX_FILES): BundleFile[] {
  try {
    return newestIn(dir, wanted, max).map(({ name }) =>
      text(`${kind}/${name}`, `"${join(dir, name)}"`, () => tryRead(join(dir, name)) ?? '(cannot be read)'),
    );
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    return code === 'ENOENT' ? [] : [text(`${kind}/unreadable.txt`, `"${dir}"`, () => message)];
  }
}

/** Executables are large: they are not read. */
function describeDir(dir: string): unknown {
  const files = existsSync(dir) ? newestIn(dir, /^[^/]+$/, MAX_FILES) : [];
  return {
    dir,
    files: files.map(({ name, stat: { size, mode, mtime, ino } }) => {
      return { name, size, mode: mode.toString(8), changed: mtime, inode: ino };
    }),
  };
}

function newestIn(dir: string, wanted: RegExp, max: number) {
  const names = readdirSync(dir, { recursive: true, encoding: 'utf8' }).filter(name => wanted.test(name));
  const files = names.flatMap(name => {
    // The others are read although one leads nowhere or has been deleted since.
    const stat = attempt(() => statSync(join(dir, name)));
    return stat?.isFile() ? [{ name, stat }] : [];
  });
  return files.sort((a, b) => b.stat.mtimeMs - a.stat.mtimeMs).slice(0, max);
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

/** A line for each object, as `catena try` names them. */
function readKernelLines(): string[] {
  return [...readNetnsState(new Tables(), ownNetns(), []).values()].map(({ words, state: details = {} }) => {
    const more = Object.entries(details).map(([name, value]) => `${name} ${value}`);
    return [words, ...(more.length ? [more.join(', ')] : [])].join(': ');
  });
}

/** Every chain with its rules, of all tables and owners; bytes as hexadecimal digits. */
function readFilter(): unknown {
  const tables = new Tables().filter.map(({ table, chains, rules }) => {
    return { table, chains: chains.map(chain => ({ ...chain, rules: rules.get(chain.name) ?? [] })) };
  });
  return plain(tables);
}

function plain(value: unknown): unknown {
  if (typeof value === 'bigint') return Number(value);
  if (value instanceof Uint8Array) return value.toHex();
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
}

interface BundleFile {
  readonly name: string;
  /** Where its content comes from, human-readable. */
  readonly what: string;
  readonly text: string;
}

/** What is longer is cut: a report is read by people. */
const MAX_BYTES = 2 * 1024 * 1024;

/** The limit of the archive's format. */
const MAX_NAME_BYTES = 100;

/** Files below one directory, the first of which lists the others. */
function packBundle(dir: string, files: readonly BundleFile[], note: string, time: Date): Uint8Array {
  const names = new Set<string>();
  const named = files.map(file => ({ ...file, name: uniqueName(dir, file.name, names) }));
  const listing = [note, '', ...named.map(({ name, what }) => `${name}: ${what}`), ''].join('\n');
  const entries = [{ name: `${dir}/CONTENTS.txt`, text: listing }, ...named];
  return packArchive(entries.map(toEntry), Math.floor(time.getTime() / 1000));
}

function toEntry({ name, text }: { readonly name: string; readonly text: string }): ArchiveEntry {
  const bytes = Buffer.from(text);
  const cut = [bytes.subarray(0, MAX_BYTES), Buffer.from(`\n(cut off after ${MAX_BYTES} bytes)\n`)];
  return { name, mode: 0o600, content: bytes.length <= MAX_BYTES ? bytes : Buffer.concat(cut) };
}

function uniqueName(dir: string, given: string, taken: Set<string>): string {
  const plain = `${dir}/${given.replaceAll(/[^\w./-]/g, '_').replaceAll('..', '_')}`;
  for (let i = 1; ; i++) {
    const ending = i === 1 ? '' : `~${i}`;
    const name = `${plain.slice(0, MAX_NAME_BYTES - ending.length)}${ending}`;
    if (!taken.has(name)) {
      taken.add(name);
      return name;
    }
  }
}
