// Which files of a configuration directory might a container runtime use, and what is in each?
import { type Dirent, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type Conflist, parseNetwork } from '../../chain/config/conflist.ts';
import { findMismatch } from '../../chain/config/file-kind.ts';
import { loadFile, unreadable } from '../../chain/config/load.ts';
import { validateNetwork } from '../../chain/config/plugin-version.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { type CniError, ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject, memberOf } from '../../cni/json.ts';

/** Extensions that make a file a candidate for at least one runtime. */
const EXTENSIONS = ['.conf', '.conflist', '.json'] as const;

/** An entry of the directory. */
export interface Candidate {
  readonly name: string;
  readonly path: string;
  /** Absent if no runtime would read the file; `ignored` says why. */
  readonly extension?: (typeof EXTENSIONS)[number];
  readonly ignored?: string;
  /** The network in the file. */
  readonly list?: Pick<Conflist, 'name' | 'version' | 'plugins' | 'source'>;
  /** Why libcni cannot load it. */
  readonly broken?: string;
  /** It contains no name; the conflist's name is that of the file. */
  readonly nameless?: boolean;
  /** Why no pod could be attached with it, although it loads. */
  readonly unusable?: string;
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
  const file = { name, path: name, extension: '.conflist' } as const;
  try {
    return { ...file, list: parseNetwork(text) };
  } catch (error) {
    return { ...file, broken: (error as CniError).message };
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

type Content = Pick<Candidate, 'list' | 'broken' | 'nameless' | 'unusable'>;

function readContent(path: string, extension: string): Content {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return { broken: 'it is a dangling symbolic link' };
  // Reading a pipe would block.
  if (!stat.isFile())
    return {
      broken: stat.isDirectory() ? 'it is a symbolic link to a directory' : 'it is not a regular file',
    };
  const object = readObject(path);
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
    return { nameless: true, ...namedAfter(path, object) };
  }
}

function readObject(path: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function namedAfter(path: string, object: JsonObject): Content {
  try {
    return { list: parseNetwork(JSON.stringify({ ...object, name: basename(path) })) };
  } catch (error) {
    return { broken: (error as CniError).message };
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
