// What must be done to install our files without losing any file of other programs?

import { basename, join, resolve } from 'node:path';
import { isObject, tryParse } from '../../cni/json.ts';
import { tryRead } from '../../files/read-file.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import {
  digestOfText,
  EDITED,
  type FoundFile,
  findManifest,
  Inspector,
  type Manifest,
  REPLACED,
} from './files.ts';
import { judgeKubeconfig, kubeconfigIn } from './kubeconfig.ts';
import type { TextFile } from './units.ts';

export interface InstallOptions {
  /** The executable, and the names that it gets. */
  readonly source: string;
  readonly names: readonly string[];
  /** The program that the executable needs beside it, and its name there. */
  readonly core?: { readonly source: string; readonly name: string };
  readonly binDir: string;
  readonly confDir: string;
  /** The configuration, if one is to be installed. */
  readonly conf?: { readonly name: string; readonly text: string };
  /** The text of a kubeconfig, if one is to be installed. */
  readonly kubeconfig?: string;
  /** What is to start the daemon; undefined: as before. */
  readonly starters?: readonly TextFile[];
  /** What shells and man read; undefined: as before. */
  readonly shared?: readonly TextFile[];
  /** Replace files of other programs; each is kept under another name next to ours. */
  readonly force: boolean;
}

export type Step = AnswerOf<'Installation'>['steps'][number];

/** Everything that an installation will do; nothing was changed yet. */
export interface InstallPlan {
  readonly wanted: InstallOptions;
  /** Executables come first and the configuration last: a runtime must not see a network whose plugins are missing. */
  readonly steps: readonly Step[];
  /** Of the files to install, by path. */
  readonly digests: ReadonlyMap<string, string>;
  /** The text files to install, by path, with the mode of a new one. */
  readonly texts: ReadonlyMap<string, { readonly text: string; readonly mode: number }>;
  /** Those of the files to retire or replace that are ours and were changed, by path: they are kept with {@link EDITED}. */
  readonly edited: ReadonlySet<string>;
  readonly before: Manifest | undefined;
}

/** Lists may hold tokens, and only runtimes read them (CIS Kubernetes Benchmark 1.1.9). */
const LIST_MODE = 0o600;
const TEXT_MODE = 0o644;

/** The file that each name is made from; those that others need come first. */
export function sourcesOf({ source, names, core }: Pick<InstallOptions, 'source' | 'names' | 'core'>): {
  readonly name: string;
  readonly source: string;
}[] {
  return [...(core ? [core] : []), ...names.map(name => ({ name, source }))];
}

export function planInstall(wanted: InstallOptions): InstallPlan {
  const { binDir, confDir, force } = wanted;
  const inspector = new Inspector();
  const before = findManifest(binDir);
  const files = sourcesOf(wanted).map(({ name, source }) => {
    const { digest } = inspector.find(source) ?? {};
    if (digest === undefined) throw new Error(`Cannot install "${source}": it is not a file`);
    const path = join(binDir, name);
    return { name, path, source, digest, found: inspector.find(path) };
  });
  const steps: Step[] = files.map(({ name, path, source, digest, found }) => {
    const judged = judge(found, before?.executables[name], digest, force);
    // Names of one program are one file.
    const inodes = files.filter(one => one.source === source && one.found?.digest === digest);
    const scattered = judged.action === 'same' && new Set(inodes.map(one => one.found?.inode)).size > 1;
    return { place: 'bin', name, path, ...(scattered ? { action: 'update' } : judged) };
  });
  const digests = new Map(files.map(({ path, digest }) => [path, digest]));
  const texts = new Map<string, { text: string; mode: number }>();
  const edited = new Set<string>();
  if (wanted.kubeconfig !== undefined) steps.push(kubeconfigStep(confDir, wanted.kubeconfig));
  for (const { place, own, noted = {}, why, mode } of textsOf(wanted, before)) {
    const known = new Map(Object.entries(noted).map(([name, kept]) => [resolve(confDir, name), kept]));
    const at = (path: string) => ({ place, name: basename(path), path });
    for (const { path, text } of own) {
      const digest = digestOfText(text);
      digests.set(path, digest);
      texts.set(path, { text, mode });
      const ours = known.get(path);
      // A list that was changed comes back at uninstall, as its editor's.
      const suffix = ours && place !== 'conf' ? EDITED : REPLACED;
      const judged = judge(inspector.find(path), ours, digest, force, suffix);
      if (judged.action === 'replace' && suffix === EDITED) edited.add(path);
      steps.push({ ...at(path), ...judged });
      known.delete(path);
    }
    for (const [path, kept] of known) {
      const found = inspector.find(path);
      const isChanged = !kept.includes(found?.digest ?? '');
      // Another network stays beside this one.
      if (place === 'conf' && networkIn(tryRead(path)) !== networkIn(wanted.conf?.text)) continue;
      // A list that was changed is its editor's; a unit would still start the daemon.
      if (found === undefined || (isChanged && place === 'conf')) continue;
      const changed = `${why}; it was changed after it was installed, and is kept with the suffix "${EDITED}"`;
      steps.push({ ...at(path), action: 'retire', why: isChanged ? changed : why });
      if (isChanged) edited.add(path);
    }
  }
  return { wanted, steps, digests, texts, edited, before };
}

function networkIn(text = ''): unknown {
  const list = tryParse(text);
  return isObject(list) ? list.name : undefined;
}

/** The text files of each place, those that are noted there, and why one that is no longer wanted goes. */
function textsOf({ confDir, conf, starters, shared }: InstallOptions, before: Manifest | undefined) {
  // A network must not exist twice.
  const lists = conf && [{ path: join(confDir, conf.name), text: conf.text }];
  const confWhy = `"${conf?.name}" replaces it`;
  const all = [
    { place: 'starter', own: starters, noted: before?.starters, why: 'the daemon is started in another way' },
    { place: 'shared', own: shared, noted: before?.shared, why: 'another directory has it now' },
    { place: 'conf', own: lists, noted: before?.configurations, why: confWhy },
  ] as const;
  return all.flatMap(({ own, ...one }) =>
    own === undefined ? [] : { ...one, own, mode: one.place === 'conf' ? LIST_MODE : TEXT_MODE },
  );
}

function kubeconfigStep(confDir: string, text: string): Step {
  const at = { place: 'account', name: 'catena.d/kubeconfig', path: kubeconfigIn(confDir) } as const;
  const found = judgeKubeconfig(confDir, text);
  if (found === 'foreign')
    return { ...at, action: 'keep', why: 'it belongs to another package; remove it by hand' };
  const action = { absent: 'create', same: 'same', ours: 'update' } as const;
  return { ...at, action: action[found] };
}

function judge(
  found: FoundFile | undefined,
  ours: readonly string[] | undefined,
  digest: string | undefined,
  force: boolean,
  suffix = REPLACED,
): Pick<Step, 'action' | 'why'> {
  if (found === undefined) return { action: 'create' };
  if (found.kind === 'directory') return { action: 'keep', why: 'it is a directory' };
  if (found.digest === digest) return { action: 'same' };
  if (found.digest !== undefined && ours?.includes(found.digest)) return { action: 'update' };
  const whose = ours ? 'it was changed after it was installed' : 'it belongs to another package';
  if (force) return { action: 'replace', why: `${whose}, and is kept with the suffix "${suffix}"` };
  return { action: 'keep', why: `${whose}; --force replaces it` };
}
