// How are our files installed so that a reader finds each of them either old or new at any moment?

import { existsSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { CORE_NAME } from '../../cni/directories.ts';
import { namesIn } from '../../files/read-file.ts';
import { withFlock } from '../../sys/flock.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { TOOL_VERSION } from '../command.ts';
import {
  EDITED,
  FILES,
  findManifest,
  Inspector,
  linkOrCopy,
  MANIFEST_NAME,
  type Manifest,
  REPLACED,
  TURN_NAME,
  UNFINISHED,
  writeManifest,
} from './files.ts';
import { judgeKubeconfig, kubeconfigIn, layKubeconfig, removeKubeconfig } from './kubeconfig.ts';
import { type InstallOptions, type InstallPlan, planInstall, type Step, sourcesOf } from './plan.ts';

/**
 * Examines the present state and installs what is wanted. If it is interrupted at any point, each file is intact, and the
 * manifest lists every file that may be ours: the next installation completes the work, and an uninstallation undoes it.
 * @returns the executed plan
 */
export function install(wanted: InstallOptions): InstallPlan {
  const { binDir } = wanted;
  FILES.makeDir(binDir);
  return takeTurn(binDir, () => {
    const plan = planInstall(wanted);
    sweep(binDir);
    for (const dir of textDirs(plan)) {
      FILES.makeDir(dir);
      sweep(dir);
    }
    layDown(plan);
    return plan;
  });
}

/** Runs one installation at a time in a directory. */
export function takeTurn<T>(binDir: string, work: () => T): T {
  return withFlock(join(binDir, TURN_NAME), work, { transient: true });
}

/** Removes the temporary files of an interrupted installation. */
function sweep(dir: string): void {
  for (const name of namesIn(dir)) {
    if (name.startsWith(UNFINISHED)) FILES.remove(join(dir, name));
  }
}

function layDown(plan: InstallPlan): void {
  const { wanted, steps, texts, before } = plan;
  const { binDir, confDir } = wanted;
  const after = noteOf(plan);
  writeManifest(binDir, before ? union(before, after) : after);
  const sources = sourcesOf(wanted);
  for (const source of new Set(sources.map(one => one.source))) {
    const names = sources.filter(one => one.source === source).map(({ name }) => name);
    const own = steps.filter(({ place, name }) => place === 'bin' && names.includes(name));
    const executables = own.filter(isWritten);
    if (executables.length === 0) continue;
    const fresh = join(binDir, `${UNFINISHED}executable`);
    const there = own.find(({ action }) => action === 'same');
    if (there) linkOrCopy(there.path, fresh);
    else FILES.copy(source, fresh);
    for (const step of executables) put(step, target => linkOrCopy(fresh, target));
    FILES.remove(fresh);
    FILES.sync(binDir);
  }
  for (const step of steps.filter(isWritten)) {
    const { text, mode = 0 } = texts.get(step.path) ?? {};
    if (step.place === 'account') layKubeconfig(confDir, wanted.kubeconfig ?? '');
    else if (text !== undefined)
      put(step, target => FILES.write(target, text, modeOf(step.path, mode)), plan.edited);
  }
  for (const { path, action } of steps) {
    if (action !== 'retire') continue;
    if (plan.edited.has(path)) FILES.rename(path, `${path}${EDITED}`);
    else FILES.remove(path);
  }
  for (const dir of textDirs(plan)) FILES.sync(dir);
  if (before) writeManifest(binDir, after);
}

/** The mode of the file that is there, which may be an operator's choice. */
function modeOf(path: string, otherwise: number): number {
  const there = statSync(path, { throwIfNoEntry: false });
  return there?.isFile() ? there.mode & 0o777 : otherwise;
}

function textDirs({ texts }: InstallPlan): Set<string> {
  return new Set(Array.from(texts.keys(), path => dirname(path)));
}

function put(
  { path, name, action }: Step,
  make: (target: string) => void,
  edited: InstallPlan['edited'] = new Set(),
): void {
  // Runtimes read files whose name begins with a dot, but none with this extension.
  const unfinished = join(dirname(path), `${UNFINISHED}${name}.new`);
  make(unfinished);
  if (edited.has(path)) FILES.remove(`${path}${EDITED}`);
  if (action === 'replace') keepBeside(path, `${path}${edited.has(path) ? EDITED : REPLACED}`);
  FILES.rename(unfinished, path);
}

/** Keeps a replaced file. An existing copy is left alone: it is the original from before our first installation. */
function keepBeside(path: string, beside: string): void {
  try {
    FILES.link(path, beside);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    // Without hard links, the path does not exist for a moment; the old file is never lost.
    FILES.rename(path, beside);
  }
}

function isWritten({ action }: Step): boolean {
  return action === 'create' || action === 'update' || action === 'replace';
}

/** Where the manifest notes the files of a place, and by what; a kubeconfig of ours is known by its first line. */
const NOTED = {
  bin: ['executables', 'name'],
  conf: ['configurations', 'name'],
  starter: ['starters', 'path'],
  shared: ['shared', 'path'],
} as const;

/** The manifest after the installation. It includes earlier files that this installation does not name. */
function noteOf({ steps, digests, before }: InstallPlan): Manifest {
  const note = { catena: TOOL_VERSION, ...listsOf(name => ({ ...before?.[name] })) };
  for (const step of steps) {
    if (step.place === 'account') continue;
    const [list, by] = NOTED[step.place];
    const digest = digests.get(step.path);
    if (digest !== undefined && (isWritten(step) || step.action === 'same')) note[list][step[by]] = [digest];
    else if (step.action === 'retire') delete note[list][step[by]];
  }
  return note;
}

function union(before: Manifest, after: Manifest): Manifest {
  const both = (a: Digests = {}, b: Digests = {}): Digests =>
    Object.fromEntries(
      Object.keys({ ...a, ...b }).map(name => [name, [...new Set([...(a[name] ?? []), ...(b[name] ?? [])])]]),
    );
  return { catena: after.catena, ...listsOf(name => both(before[name], after[name])) };
}

type Digests = Manifest['executables'];

function listsOf(digestsOf: (name: (typeof NOTED)[keyof typeof NOTED][0]) => Digests) {
  return {
    executables: digestsOf('executables'),
    configurations: digestsOf('configurations'),
    starters: digestsOf('starters'),
    shared: digestsOf('shared'),
  };
}

/** What is installed where. Without a manifest, files of these names are ours if they are identical to their sources. */
type Installed = Pick<InstallOptions, 'binDir' | 'confDir' | 'source' | 'names' | 'core'>;

export type UninstallStep = AnswerOf<'Uninstallation'>['steps'][number];

/** Examines the present state. The configuration comes first, so that no runtime finds it without its plugins. */
export function planUninstall(installed: Installed): UninstallStep[] {
  const { binDir, confDir } = installed;
  const inspector = new Inspector();
  const manifest = findManifest(binDir) ?? byContent(inspector, installed);
  const { [CORE_NAME]: core, ...others } = manifest.executables;
  const judge = (dir: string, list: Digests = {}) =>
    Object.entries(list).flatMap(([name, digests]) => judgeFile(resolve(dir, name), digests, inspector));
  const account = judgeKubeconfig(confDir, undefined) === 'ours' ? [kubeconfigIn(confDir)] : [];
  return [
    // First of all, so that nothing starts a daemon during the rest.
    ...judge(binDir, manifest.starters),
    ...judge(binDir, manifest.shared),
    ...judge(confDir, manifest.configurations),
    ...account.map(path => ({ path, action: 'remove' as const })),
    ...judge(binDir, others),
    // The others need it.
    ...(core ? judge(binDir, { [CORE_NAME]: core }) : []),
  ];
}

/** Executes {@link planUninstall}; if interrupted at any point, it can be repeated. @returns what was done */
export function uninstall(installed: Installed): UninstallStep[] {
  const { binDir, confDir } = installed;
  if (!existsSync(binDir)) return [];
  return takeTurn(binDir, () => {
    const steps = planUninstall(installed);
    for (const { path, action } of steps) {
      if (action === 'restore') FILES.rename(`${path}${REPLACED}`, path);
      else if (action === 'remove' && path === kubeconfigIn(confDir)) removeKubeconfig(confDir);
      else if (action === 'remove') FILES.remove(path);
    }
    for (const dir of new Set([...steps.map(({ path }) => dirname(path)), confDir, binDir])) {
      if (!existsSync(dir)) continue;
      sweep(dir);
      FILES.sync(dir);
    }
    // Last of all: without it, an interrupted uninstallation could not be continued.
    FILES.remove(join(binDir, MANIFEST_NAME));
    return steps;
  });
}

function judgeFile(path: string, digests: readonly string[], inspector: Inspector): UninstallStep[] {
  const beside = `${path}${REPLACED}`;
  const [found, before] = [inspector.find(path), inspector.find(beside)];
  if (found === undefined) return before ? [restore(path)] : [];
  if (found.digest !== undefined && digests.includes(found.digest))
    return [before ? restore(path) : { path, action: 'remove' }];
  // An installation was interrupted between its two steps: both names are the old file.
  if (before?.digest !== undefined && before.digest === found.digest)
    return [{ path: beside, action: 'remove' }];
  return [{ path, action: 'keep', why: 'it was changed after it was installed' }];
}

function restore(path: string): UninstallStep {
  return { path, action: 'restore', why: `it existed before and was kept as "${path}${REPLACED}"` };
}

/** Executables that were copied there without this tool. */
function byContent(inspector: Inspector, installed: Installed): Manifest {
  const same = sourcesOf(installed).flatMap(({ name, source }): [string, string[]][] => {
    const digest = inspector.find(source)?.digest;
    const isSame = digest !== undefined && inspector.find(join(installed.binDir, name))?.digest === digest;
    return isSame ? [[name, [digest]]] : [];
  });
  return { catena: '', executables: Object.fromEntries(same), configurations: {} };
}
