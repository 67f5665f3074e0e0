// Which of the files does each container runtime use, and why?

import { type Dirent, readdirSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type Conflist, findMismatch, parseNetwork } from '../../chain/config/conflist.ts';
import { loadFile, unreadable } from '../../chain/config/load.ts';
import { validateNetwork } from '../../chain/config/plugin-version.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { type CniError, ErrorCode } from '../../cni/errors.ts';
import { defined, isObject, memberOf, tryParse } from '../../cni/json.ts';
import { tryRead } from '../../files/read-file.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type InstalledRuntime, installedRuntimes, refusalOf } from './libcni.ts';

/** Extensions that make a file a candidate for at least one runtime. */
const EXTENSIONS = ['.conf', '.conflist', '.json'] as const;

/** An entry of the directory. */
export interface Candidate
  extends Omit<AnswerOf<'NetworkFiles'>['files'][number], 'network' | 'cniVersion' | 'plugins'> {
  /** Absent if no runtime would read the file; `ignored` says why. */
  readonly extension?: (typeof EXTENSIONS)[number];
  readonly list?: Pick<Conflist, 'name' | 'version' | 'plugins' | 'source'>;
}

/**
 * Every entry, sorted bytewise by name as runtimes do; none if the directory is missing.
 * @param runtime where to find the plugins, to ask for their versions; without it only the files are read
 * @throws CniError 5 if the directory cannot be read
 */
export async function readCandidates(dir: string, runtime?: Runtime): Promise<Candidate[]> {
  const candidates: Candidate[] = [];
  for (const entry of listEntries(dir)) {
    const candidate = readCandidate(dir, entry);
    candidates.push(runtime ? await withExecutables(candidate, runtime) : candidate);
  }
  return candidates;
}

/** A conflist as it would be seen in a file of that name. */
export function candidateOf(name: string, text: string): Candidate {
  return { name, path: name, extension: '.conflist', ...networkIn(text) };
}

function networkIn(text: string): Pick<Candidate, 'list' | 'broken'> {
  try {
    return { list: parseNetwork(text) };
  } catch (error) {
    return { broken: (error as CniError).message };
  }
}

function listEntries(dir: string): Dirent[] {
  try {
    const entries = readdirSync(dir, { withFileTypes: true });
    return entries.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw unreadable(dir, cause);
  }
}

function readCandidate(dir: string, entry: Dirent): Candidate {
  const { name } = entry;
  const file = { name, path: join(dir, name) };
  if (entry.isDirectory()) return { ...file, ignored: 'it is a directory' };
  const extension = EXTENSIONS.find(end => name.endsWith(end));
  if (extension === undefined)
    return { ...file, ignored: 'its name does not end in .conflist, .conf or .json' };
  return { ...file, extension, ...readContent(file.path, extension) };
}

/** Why the file is not read, whatever is in it: reading a pipe would block. */
function whyUnread(path: string): string | undefined {
  try {
    const stat = statSync(path);
    if (stat.isFile()) return undefined;
    return stat.isDirectory() ? 'it is a symbolic link to a directory' : 'it is not a regular file';
  } catch (cause) {
    const { code = '', message } = cause as NodeJS.ErrnoException;
    // It may also lead to itself, or below a file.
    return ['ENOENT', 'ENOTDIR', 'ELOOP'].includes(code) ? 'it is a dangling symbolic link' : message;
  }
}

function readContent(
  path: string,
  extension: string,
): Pick<Candidate, 'list' | 'broken' | 'nameless' | 'unusable'> {
  const unread = whyUnread(path);
  if (unread !== undefined) return { broken: unread };
  const value = tryParse(tryRead(path) ?? '');
  const object = isObject(value) ? value : undefined;
  const mismatch = object && findMismatch(path, object);
  if (mismatch) return { broken: mismatch.problem };
  try {
    return { list: loadFile(path) };
  } catch (error) {
    const { code, message } = error as CniError;
    // libcni does not check the version when it loads a file.
    if (code === ErrorCode.incompatibleVersion) return { unusable: message };
    if (extension === '.conflist' || object === undefined || memberOf(object, 'name'))
      return { broken: message };
    return { nameless: true, ...networkIn(JSON.stringify({ ...object, name: basename(path) })) };
  }
}

async function withExecutables(candidate: Candidate, runtime: Runtime): Promise<Candidate> {
  const { list } = candidate;
  if (list === undefined) return candidate;
  try {
    await validateNetwork(list as Conflist, runtime);
    return candidate;
  } catch (error) {
    return { ...candidate, unusable: (error as Error).message };
  }
}

export const RUNTIMES = ['containerd', 'CRI-O', 'podman'] as const;
export type RuntimeName = (typeof RUNTIMES)[number];

export interface Settings {
  /** containerd: `max_conf_num`, 1 by default; 0 means all files. */
  readonly maxConfNum?: number;
  /** CRI-O: `cni_default_network`. */
  readonly defaultNetwork?: string;
  /** The runtime itself, if it is installed and its libcni is known. */
  readonly installed?: InstalledRuntime;
}

type FileUse = Choice['verdicts'][number];

/** What a runtime does with a directory. */
export type Choice = AnswerOf<'NetworkFiles'>['runtimes'][number];

/**
 * What each runtime does with a directory's files, with the settings in its own configuration, as it is installed.
 * @param given settings that count instead
 */
export function choicesOf(
  files: readonly Candidate[],
  configured: readonly (Settings & Pick<Choice, 'runtime'>)[],
  given: Settings = {},
): Choice[] {
  return RUNTIMES.map(runtime => {
    const own = configured.find(one => one.runtime === runtime);
    const installed = installedRuntimes().find(one => one.runtime === runtime);
    return choose(runtime, files, { ...own, ...given, ...defined({ installed }) });
  });
}

/** Which of a directory's files, sorted by name, a runtime uses. */
export function choose(runtime: RuntimeName, files: readonly Candidate[], settings: Settings = {}): Choice {
  const choice = RULES[runtime](files, settings);
  const { installed } = settings;
  if (installed === undefined) return choice;
  const refused = new Map(
    choice.files.flatMap(name => {
      const source = files.find(file => file.name === name)?.list?.source;
      const why = source === undefined ? undefined : refusalOf(source, installed);
      return why === undefined ? [] : [[name, why] as const];
    }),
  );
  const [first] = refused;
  if (first === undefined) return choice;
  const verdicts = choice.verdicts.map(one => {
    const why = refused.get(one.file);
    return why === undefined ? one : { ...one, why: `${one.why}, but every container fails: ${why}` };
  });
  return {
    ...choice,
    verdicts,
    problem: choice.problem ?? `"${first[0]}" is used, but every container fails: ${first[1]}`,
  };
}

const RULES: Readonly<Record<RuntimeName, (files: readonly Candidate[], settings: Settings) => Choice>> = {
  containerd: byContainerd,
  'CRI-O': byCrio,
  podman: byPodman,
};

/** go-cni: the first `max_conf_num` files by name, all of which must load; executables are not checked. */
function byContainerd(files: readonly Candidate[], { maxConfNum = 1 }: Settings): Choice {
  const runtime = 'containerd';
  const considered = files.filter(file => file.extension !== undefined);
  const read = maxConfNum > 0 ? considered.slice(0, maxConfNum) : considered;
  const broken = read.find(file => file.broken !== undefined);
  const count =
    maxConfNum > 0 ? `the first ${maxConfNum === 1 ? 'file' : `${maxConfNum} files`}` : 'every file';
  const verdicts = files.map((file): FileUse => {
    if (file.ignored) return use(file, false, file.ignored);
    const at = read.indexOf(file);
    if (at < 0) return use(file, false, `only ${count} by name is read (max_conf_num)`);
    if (file.broken) return use(file, false, 'it is broken, so no file is loaded');
    if (broken) return use(file, false, `"${broken.name}" is broken, so no file is loaded`);
    const place = at === 0 ? 'it is the first by name' : `it is among ${count} by name`;
    return use(file, true, file.unusable ? `${place}, but pods will fail: ${file.unusable}` : place);
  });
  const problem = broken
    ? `"${broken.name}" cannot be loaded: ${broken.broken}`
    : (firstUnusable(read) ?? (read.length ? undefined : 'there is no configuration'));
  return finish(runtime, verdicts, problem);
}

/** ocicni: the configured network, else the first file that loads and whose plugins exist. */
function byCrio(files: readonly Candidate[], { defaultNetwork }: Settings): Choice {
  const names = new Map<string, string>();
  let chosen: string | undefined;
  const verdicts = files.map((file): FileUse => {
    const reason = file.ignored ?? skipReason(file) ?? takenReason(file, names);
    if (reason !== undefined) return use(file, false, reason);
    const wanted = defaultNetwork === undefined ? chosen === undefined : file.list?.name === defaultNetwork;
    if (wanted) chosen = file.name;
    return use(file, wanted, crioReason(wanted, chosen, defaultNetwork));
  });
  const missing =
    defaultNetwork === undefined
      ? 'no configuration can be loaded and has all its plugins'
      : `no usable file has network "${defaultNetwork}" (cni_default_network)`;
  return finish('CRI-O', verdicts, chosen === undefined ? missing : undefined);
}

function crioReason(wanted: boolean, chosen: string | undefined, defaultNetwork: string | undefined): string {
  if (defaultNetwork === undefined)
    return wanted ? 'it is the first usable file by name' : `"${chosen}" comes first by name`;
  return wanted ? 'its network is cni_default_network' : `cni_default_network is "${defaultNetwork}"`;
}

/** containers/common: only conflists, each requested by its network's name; the first one of a name counts. */
function byPodman(files: readonly Candidate[]): Choice {
  const names = new Map<string, string>();
  const verdicts = files.map((file): FileUse => {
    const isRead = file.ignored !== undefined || file.extension === '.conflist';
    const reason = isRead
      ? (file.ignored ?? skipReason(file) ?? takenReason(file, names))
      : 'podman reads .conflist files only';
    return use(file, reason === undefined, reason ?? `by name: --network ${file.list?.name ?? ''}`);
  });
  return finish('podman', verdicts, names.size ? undefined : 'there is no usable list');
}

function skipReason({ broken, unusable }: Candidate): string | undefined {
  return broken === undefined ? unusable && `skipped: ${unusable}` : 'it is broken and skipped';
}

/** Of two files with one network, the first counts. @param names of the files, by network */
function takenReason({ name: file, list }: Candidate, names: Map<string, string>): string | undefined {
  const network = list?.name ?? '';
  const earlier = names.get(network);
  if (earlier === undefined) names.set(network, file);
  return earlier && `network "${network}" is already defined in "${earlier}"`;
}

function firstUnusable(files: readonly Candidate[]): string | undefined {
  const file = files.find(one => one.unusable !== undefined);
  return file && `"${file.name}" is used, but pods will fail: ${file.unusable}`;
}

function use(file: Candidate, used: boolean, why: string): FileUse {
  return { file: file.name, used, why };
}

function finish(runtime: RuntimeName, verdicts: readonly FileUse[], problem: string | undefined): Choice {
  const files = verdicts.filter(({ used }) => used).map(({ file }) => file);
  return { runtime, files, verdicts, ...defined({ problem }) };
}
