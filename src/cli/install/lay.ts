// How are our files installed so that a reader finds each of them either old or new at any moment?

import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CORE_NAME } from '../../cni/directories.ts';
import { namesIn } from '../../files/read-file.ts';
import { withFlock } from '../../sys/flock.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import {
  type Files,
  findManifest,
  Inspector,
  MANIFEST_NAME,
  type Manifest,
  REAL_FILES,
  REPLACED,
  TURN_NAME,
  UNFINISHED,
  writeManifest,
} from './files.ts';
import { judgeKubeconfig, kubeconfigIn, layKubeconfig, removeKubeconfig } from './kubeconfig.ts';
import { type InstallOptions, type InstallPlan, planInstall, type Step, sourcesOf } from './plan.ts';
import type { TextFile } from './units.ts';

/** Lists may hold tokens, and only runtimes read them (CIS Kubernetes Benchmark 1.1.9). */
const LIST_MODE = 0o600;
const TEXT_MODE = 0o644;

/**
 * Examines the present state and installs what is wanted. If it is interrupted at any point, each file is intact, and the
 * manifest lists every file that may be ours: the next installation completes the work, and an uninstallation undoes it.
 * @param version of this tool, for the manifest
 * @returns the executed plan
 */
export function install(wanted: InstallOptions, version: string, files: Files = REAL_FILES): InstallPlan {
  const { binDir, confDir, conf } = wanted;
  files.makeDir(binDir);
  if (conf) files.makeDir(confDir);
  return takeTurn(binDir, () => {
    const plan = planInstall(wanted);
    sweep(binDir, files);
    if (conf) sweep(confDir, files);
    for (const dir of textDirs(wanted)) {
      files.makeDir(dir);
      sweep(dir, files);
    }
    layDown(plan, version, files);
    return plan;
  });
}

/** Runs one installation at a time in a directory. */
export function takeTurn<T>(binDir: string, work: () => T): T {
  return withFlock(join(binDir, TURN_NAME), work, { transient: true });
}

/** Removes the temporary files of an interrupted installation. */
function sweep(dir: string, files: Files): void {
  for (const name of namesIn(dir)) {
    if (name.startsWith(UNFINISHED)) files.remove(join(dir, name));
  }
}

function layDown(plan: InstallPlan, version: string, files: Files): void {
  const { wanted, steps, before } = plan;
  const { binDir, confDir, conf } = wanted;
  const after = noteOf(plan, version);
  writeManifest(binDir, before ? union(before, after) : after, files);
  const written = steps.filter(({ action }) => isWritten(action));
  const sources = sourcesOf(wanted);
  for (const source of new Set(sources.map(one => one.source))) {
    const isFromIt = ({ place, name }: Step): boolean =>
      place === 'bin' && sources.some(one => one.name === name && one.source === source);
    const executables = written.filter(isFromIt);
    if (executables.length === 0) continue;
    const fresh = join(binDir, `${UNFINISHED}executable`);
    const there = steps.find(step => isFromIt(step) && step.action === 'same');
    if (there) linkOrCopy(there.path, fresh, files);
    else files.copy(source, fresh);
    for (const step of executables) put(step, files, target => linkOrCopy(fresh, target, files));
    files.remove(fresh);
    files.sync(binDir);
  }
  if (written.some(({ place }) => place === 'account'))
    layKubeconfig(confDir, wanted.kubeconfig ?? '', files);
  for (const step of written.filter(({ place }) => place === 'conf'))
    put(step, files, target => files.write(target, conf?.text ?? '', modeOf(step.path, LIST_MODE)));
  for (const step of written.filter(({ place }) => place === 'starter' || place === 'shared'))
    put(step, files, target => files.write(target, textOf(step, wanted), modeOf(step.path, TEXT_MODE)));
  for (const { path, action } of steps) if (action === 'retire') files.remove(path);
  for (const dir of textDirs(wanted)) files.sync(dir);
  if (conf) files.sync(confDir);
  if (before) writeManifest(binDir, after, files);
}

/** The mode of the file that is there, which may be an operator's choice. */
function modeOf(path: string, otherwise: number): number {
  const there = statSync(path, { throwIfNoEntry: false });
  return there?.isFile() ? there.mode & 0o777 : otherwise;
}

function textsOf({ starters = [], shared = [] }: InstallOptions): readonly TextFile[] {
  return [...starters, ...shared];
}

function textDirs(wanted: InstallOptions): string[] {
  return [...new Set(textsOf(wanted).map(({ path }) => dirname(path)))];
}

function textOf({ path }: Step, wanted: InstallOptions): string {
  return textsOf(wanted).find(one => one.path === path)?.text ?? '';
}

function put({ path, name, action }: Step, files: Files, make: (target: string) => void): void {
  // Runtimes read files whose name begins with a dot, but none with this extension.
  const unfinished = join(dirname(path), `${UNFINISHED}${name}.new`);
  make(unfinished);
  if (action === 'replace') keepBeside(path, files);
  files.rename(unfinished, path);
}

/** Keeps a replaced file. An existing copy is left alone: it is the original from before our first installation. */
function keepBeside(path: string, files: Files): void {
  const beside = `${path}${REPLACED}`;
  try {
    files.link(path, beside);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    // Without hard links, the path does not exist for a moment; the old file is never lost.
    files.rename(path, beside);
  }
}

function linkOrCopy(source: string, target: string, files: Files): void {
  try {
    files.link(source, target);
  } catch {
    files.copy(source, target);
  }
}

function isWritten(action: Step['action']): boolean {
  return action === 'create' || action === 'update' || action === 'replace';
}

function isOurs({ action }: Step): boolean {
  return isWritten(action) || action === 'same';
}

/** The manifest after the installation. It includes earlier files that this installation does not name. */
function noteOf({ steps, digests, before }: InstallPlan, version: string): Manifest {
  const executables: Record<string, string[]> = { ...before?.executables };
  const configurations: Record<string, string[]> = { ...before?.configurations };
  const texts = { starter: { ...before?.starters }, shared: { ...before?.shared } };
  for (const step of steps) {
    if (step.place === 'account') continue;
    if (step.place === 'starter' || step.place === 'shared') {
      const noted: Record<string, string[]> = texts[step.place];
      const digest = { starter: digests.starters, shared: digests.shared }[step.place][step.path];
      if (isOurs(step) && digest !== undefined) noted[step.path] = [digest];
      else if (step.action === 'retire') delete noted[step.path];
      continue;
    }
    const [list, digest] =
      step.place === 'bin' ? [executables, digests.executables[step.name]] : [configurations, digests.conf];
    if (isOurs(step) && digest !== undefined) list[step.name] = [digest];
    else if (step.action === 'retire') delete list[step.name];
  }
  return { catena: version, executables, configurations, starters: texts.starter, shared: texts.shared };
}

function union(before: Manifest, after: Manifest): Manifest {
  const both = (a: Manifest['executables'], b: Manifest['executables']) =>
    Object.fromEntries(
      [...new Set([...Object.keys(a), ...Object.keys(b)])].map(name => [
        name,
        [...new Set([...(a[name] ?? []), ...(b[name] ?? [])])],
      ]),
    );
  return {
    catena: after.catena,
    executables: both(before.executables, after.executables),
    configurations: both(before.configurations, after.configurations),
    starters: both(before.starters ?? {}, after.starters ?? {}),
    shared: both(before.shared ?? {}, after.shared ?? {}),
  };
}

/** What is installed where. Without a manifest, files of these names are ours if they are identical to their sources. */
type Installed = Pick<InstallOptions, 'binDir' | 'confDir' | 'source' | 'names' | 'core'>;

/** What happens to one file. */
export type UninstallStep = AnswerOf<'Uninstallation'>['steps'][number];

/** Examines the present state. The configuration comes first, so that no runtime finds it without its plugins. */
export function planUninstall(installed: Installed): UninstallStep[] {
  const { binDir, confDir } = installed;
  const inspector = new Inspector();
  const manifest = findManifest(binDir) ?? byContent(inspector, installed);
  const { [CORE_NAME]: core, ...others } = manifest.executables;
  const judge = (dir: string, list: Manifest['executables']) =>
    Object.entries(list).flatMap(([name, digests]) => judgeFile(join(dir, name), digests, inspector));
  const account = judgeKubeconfig(confDir, undefined) === 'ours' ? [kubeconfigIn(confDir)] : [];
  const starters = Object.entries(manifest.starters ?? {});
  return [
    // First of all, so that nothing starts a daemon during the rest.
    ...starters.flatMap(([path, digests]) => judgeFile(path, digests, inspector)),
    ...Object.entries(manifest.shared ?? {}).flatMap(([path, digests]) =>
      judgeFile(path, digests, inspector),
    ),
    ...judge(confDir, manifest.configurations),
    ...account.map(path => ({ path, action: 'remove' as const })),
    ...judge(binDir, others),
    // The others need it.
    ...(core ? judge(binDir, { [CORE_NAME]: core }) : []),
  ];
}

/** Executes {@link planUninstall}; if interrupted at any point, it can be repeated. @returns what was done */
export function uninstall(installed: Installed, files: Files = REAL_FILES): UninstallStep[] {
  const { binDir, confDir } = installed;
  if (!existsSync(binDir)) return [];
  return takeTurn(binDir, () => {
    const steps = planUninstall(installed);
    for (const { path, action } of steps) {
      if (action === 'restore') files.rename(`${path}${REPLACED}`, path);
      else if (action === 'remove' && path === kubeconfigIn(confDir)) removeKubeconfig(confDir, files);
      else if (action === 'remove') files.remove(path);
    }
    for (const dir of new Set([...steps.map(({ path }) => dirname(path)), confDir, binDir])) {
      if (!existsSync(dir)) continue;
      sweep(dir, files);
      files.sync(dir);
    }
    // Last of all: without it, an interrupted uninstallation could not be continued.
    files.remove(join(binDir, MANIFEST_NAME));
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
