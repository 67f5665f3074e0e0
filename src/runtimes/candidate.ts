// Which files of a configuration directory may a container runtime take, and what is in each?
import { type Dirent, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { unreadable } from '../chain/conf-files.ts';
import { type Conflist, isSinglePlugin, parseNetwork } from '../chain/conflist.ts';
import { loadFile } from '../chain/load.ts';
import { validateNetwork } from '../chain/plugin-version.ts';
import type { Runtime } from '../chain/runtime.ts';
import { type CniError, ErrorCode } from '../cni/errors.ts';
import { isObject, type JsonObject, memberOf } from '../cni/json.ts';

/** Extensions that make a file a candidate for some runtime. */
const EXTENSIONS = ['.conf', '.conflist', '.json'] as const;

/** An entry of the directory. */
export interface Candidate {
  readonly name: string;
  readonly path: string;
  /** Absent when no runtime would look at it; `ignored` says why. */
  readonly extension?: (typeof EXTENSIONS)[number];
  readonly ignored?: string;
  /** The network that is in it. */
  readonly list?: Pick<Conflist, 'name' | 'version' | 'plugins'>;
  /** Why libcni cannot load it. */
  readonly broken?: string;
  /** It has no name of its own; the list's is that of the file. */
  readonly nameless?: boolean;
  /** Why no pod could be attached by it, although it loads. */
  readonly unusable?: string;
}

/**
 * Every entry, sorted by the bytes of its name as runtimes sort. A missing directory has none.
 * @param runtime where to look for the links, which are asked for their versions; files alone are read without it
 * @throws CniError 5 when the directory cannot be read
 */
export async function readCandidates(dir: string, runtime?: Runtime): Promise<Candidate[]> {
  const candidates: Candidate[] = [];
  for (const entry of listEntries(dir)) {
    const candidate = readCandidate(dir, entry);
    candidates.push(runtime ? await withExecutables(candidate, runtime) : candidate);
  }
  return candidates;
}

/** A list as it would be seen in a file of that name. */
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
  if (stat === undefined) return { broken: 'it is a link to nothing' };
  // A pipe would keep the reader waiting.
  if (!stat.isFile())
    return { broken: stat.isDirectory() ? 'it links to a directory' : 'it is no regular file' };
  const object = readObject(path);
  if (object !== undefined && isSinglePlugin(object) === (extension === '.conflist')) {
    if (isSinglePlugin(object)) return { broken: 'it is a single plugin configuration, not a list' };
    const isList = object.plugins !== undefined;
    return { broken: isList ? 'it is a list, which belongs into a .conflist file' : 'it has no "type"' };
  }
  try {
    return { list: loadFile(path) };
  } catch (error) {
    const { code, message } = error as CniError;
    // libcni minds no version when it loads.
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
