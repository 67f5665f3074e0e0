// What must be done to install our files without losing any file of other programs?

import { basename, join } from 'node:path';
import type { AnswerOf } from '../answers/kinds.ts';
import { digestOfText, type FoundFile, findManifest, Inspector, type Manifest, REPLACED } from './files.ts';
import { judgeKubeconfig, kubeconfigIn } from './kubeconfig.ts';
import type { TextFile } from './units.ts';

/** What is to be installed, and where. */
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

/** What happens to one file. */
export type Step = AnswerOf<'Installation'>['steps'][number];

/** Everything that an installation will do; nothing was changed yet. */
export interface InstallPlan {
  readonly wanted: InstallOptions;
  /** Executables come first and the configuration last: a runtime must not see a network whose plugins are missing. */
  readonly steps: readonly Step[];
  readonly digests: {
    readonly executables: Readonly<Record<string, string>>;
    readonly conf?: string;
    readonly starters: Readonly<Record<string, string>>;
    readonly shared: Readonly<Record<string, string>>;
  };
  readonly before: Manifest | undefined;
}

/** The file that each name is made from; those that others need come first. */
export function sourcesOf({ source, names, core }: Pick<InstallOptions, 'source' | 'names' | 'core'>): {
  readonly name: string;
  readonly source: string;
}[] {
  return [...(core ? [core] : []), ...names.map(name => ({ name, source }))];
}

/** Examines the present state. */
export function planInstall(wanted: InstallOptions): InstallPlan {
  const { binDir, confDir, conf, force } = wanted;
  const inspector = new Inspector();
  const before = findManifest(binDir);
  const files = sourcesOf(wanted).map(({ name, source }) => {
    const { digest } = inspector.find(source) ?? {};
    if (digest === undefined) throw new Error(`Cannot install "${source}": it is not a file`);
    return { name, source, digest, found: inspector.find(join(binDir, name)) };
  });
  const steps: Step[] = files.map(({ name, source, digest, found }) => {
    const judged = judge(found, before?.executables[name], digest, force);
    // Names of one program are one file.
    const inodes = files.filter(one => one.source === source && one.found?.digest === digest);
    const scattered = judged.action === 'same' && new Set(inodes.map(one => one.found?.inode)).size > 1;
    const at = { place: 'bin', name, path: join(binDir, name) } as const;
    return { ...at, ...(scattered ? { action: 'update' as const } : judged) };
  });
  if (wanted.kubeconfig !== undefined) steps.push(kubeconfigStep(confDir, wanted.kubeconfig));
  if (wanted.starters) {
    const at = {
      place: 'starter',
      known: before?.starters,
      why: 'the daemon is started in another way',
    } as const;
    steps.push(...textSteps(at, wanted.starters, inspector, force));
  }
  if (wanted.shared) {
    const at = { place: 'shared', known: before?.shared, why: 'another directory has it now' } as const;
    steps.push(...textSteps(at, wanted.shared, inspector, force));
  }
  const digest = conf && digestOfText(conf.text);
  if (conf !== undefined) {
    const path = join(confDir, conf.name);
    const judged = judge(inspector.find(path), before?.configurations[conf.name], digest, force);
    steps.push({ place: 'conf', name: conf.name, path, ...judged });
    steps.push(...retired(wanted, before, inspector));
  }
  return {
    wanted,
    steps,
    digests: {
      starters: digestsOf(wanted.starters),
      shared: digestsOf(wanted.shared),
      executables: Object.fromEntries(files.map(({ name, digest: own }) => [name, own])),
      ...(digest === undefined ? {} : { conf: digest }),
    },
    before,
  };
}

function digestsOf(files: readonly TextFile[] = []): Record<string, string> {
  return Object.fromEntries(files.map(({ path, text }) => [path, digestOfText(text)]));
}

/** @param at where they are noted, and why those that are no longer wanted are removed */
function textSteps(
  {
    place,
    known = {},
    why,
  }: Pick<Step, 'place'> & { readonly known: Manifest['starters']; readonly why: string },
  wanted: readonly TextFile[],
  inspector: Inspector,
  force: boolean,
): Step[] {
  const at = (path: string) => ({ place, name: basename(path), path });
  const others = Object.keys(known).filter(path => wanted.every(one => one.path !== path));
  return [
    ...wanted.map(({ path, text }) => ({
      ...at(path),
      ...judge(inspector.find(path), known[path], digestOfText(text), force),
    })),
    ...others
      .filter(path => inspector.find(path) !== undefined)
      .map(path => ({ ...at(path), action: 'retire' as const, why })),
  ];
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
): Pick<Step, 'action' | 'why'> {
  if (found === undefined) return { action: 'create' };
  if (found.kind === 'directory') return { action: 'keep', why: 'it is a directory' };
  if (found.digest === digest) return { action: 'same' };
  if (found.digest !== undefined && ours?.includes(found.digest)) return { action: 'update' };
  const whose = ours ? 'it was changed after it was installed' : 'it belongs to another package';
  if (force) return { action: 'replace', why: `${whose}, and is kept with the suffix "${REPLACED}"` };
  return { action: 'keep', why: `${whose}; --force replaces it` };
}

/** Configurations that were installed earlier and now have another name: a network must not exist twice. */
function retired(
  { confDir, conf }: InstallOptions,
  before: Manifest | undefined,
  inspector: Inspector,
): Step[] {
  return Object.entries(before?.configurations ?? {}).flatMap(([name, digests]) => {
    const path = join(confDir, name);
    const digest = inspector.find(path)?.digest;
    if (name === conf?.name || digest === undefined || !digests.includes(digest)) return [];
    return [{ place: 'conf', name, path, action: 'retire', why: `"${conf?.name}" replaces it` }] as const;
  });
}
