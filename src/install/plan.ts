// What is to be done so that our files lie where they should, and nobody else's are lost?
import { join } from 'node:path';
import { digestOfText, type Found, Inspector } from './identity.ts';
import { judgeKubeconfig, kubeconfigIn } from './kubeconfig.ts';
import { findManifest, type Manifest } from './manifest.ts';
import { REPLACED } from './names.ts';

/** What shall lie where. */
export interface Wanted {
  /** The executable, and the names it shall have. */
  readonly source: string;
  readonly names: readonly string[];
  readonly binDir: string;
  readonly confDir: string;
  /** The configuration, if there is one to install. */
  readonly conf?: { readonly name: string; readonly text: string };
  /** The text of a kubeconfig beside the lists, if there is one to install. */
  readonly kubeconfig?: string;
  /** Replace files of others; each stays beside ours under another name. */
  readonly force: boolean;
}

/** What happens to one file. */
export interface Step {
  readonly place: 'bin' | 'conf' | 'account';
  readonly name: string;
  readonly path: string;
  /** `keep`: somebody else's, left alone. `retire`: ours of before, which has another name now. */
  readonly action: 'create' | 'update' | 'replace' | 'same' | 'keep' | 'retire';
  readonly why?: string;
}

/** Everything that an installation is going to do; nothing has been touched. */
export interface InstallPlan {
  readonly wanted: Wanted;
  /** Executables first and the configuration last: a runtime must not see a network whose links are missing. */
  readonly steps: readonly Step[];
  readonly digests: { readonly source: string; readonly conf?: string };
  readonly before: Manifest | undefined;
}

/** Looks at what is there. */
export function planInstall(wanted: Wanted): InstallPlan {
  const { source, names, binDir, confDir, conf, force } = wanted;
  const inspector = new Inspector();
  const before = findManifest(binDir);
  const executable = inspector.find(source);
  if (executable?.digest === undefined) throw new Error(`Cannot install "${source}": it is no file`);
  const found = names.map(name => inspector.find(join(binDir, name)));
  // Links call each other in one process when they are one file.
  const inodes = new Set(found.flatMap(one => (one && one.digest === executable.digest ? [one.inode] : [])));
  const steps: Step[] = names.map((name, i) => {
    const judged = judge(found[i], before?.executables[name], executable.digest, force);
    const scattered = judged.action === 'same' && inodes.size > 1;
    const at = { place: 'bin', name, path: join(binDir, name) } as const;
    return { ...at, ...(scattered ? { action: 'update' as const } : judged) };
  });
  if (wanted.kubeconfig !== undefined) steps.push(kubeconfigStep(confDir, wanted.kubeconfig));
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
    digests: { source: executable.digest, ...(digest === undefined ? {} : { conf: digest }) },
    before,
  };
}

function kubeconfigStep(confDir: string, text: string): Step {
  const at = { place: 'account', name: 'catena.d/kubeconfig', path: kubeconfigIn(confDir) } as const;
  const found = judgeKubeconfig(confDir, text);
  if (found === 'foreign') return { ...at, action: 'keep', why: "it is somebody else's; remove it by hand" };
  const action = { absent: 'create', same: 'same', ours: 'update' } as const;
  return { ...at, action: action[found] };
}

function judge(
  found: Found | undefined,
  ours: readonly string[] | undefined,
  digest: string | undefined,
  force: boolean,
): Pick<Step, 'action' | 'why'> {
  if (found === undefined) return { action: 'create' };
  if (found.kind === 'directory') return { action: 'keep', why: 'it is a directory' };
  if (found.digest === digest) return { action: 'same' };
  if (found.digest !== undefined && ours?.includes(found.digest)) return { action: 'update' };
  const whose = ours ? 'it was changed after it was installed' : "it is somebody else's";
  if (force) return { action: 'replace', why: `${whose}, and stays under the end "${REPLACED}"` };
  return { action: 'keep', why: `${whose}; --force replaces it` };
}

/** Configurations that were installed here before and have another name now: one network must not be there twice. */
function retired({ confDir, conf }: Wanted, before: Manifest | undefined, inspector: Inspector): Step[] {
  return Object.entries(before?.configurations ?? {}).flatMap(([name, digests]) => {
    const path = join(confDir, name);
    const digest = inspector.find(path)?.digest;
    if (name === conf?.name || digest === undefined || !digests.includes(digest)) return [];
    return [{ place: 'conf', name, path, action: 'retire', why: `"${conf?.name}" takes its place` }] as const;
  });
}
