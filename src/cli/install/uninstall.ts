// How are exactly the installed files removed, and the replaced ones restored?

import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CORE_NAME } from '../../chain/config/core-name.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type Files, findManifest, MANIFEST_NAME, type Manifest, REAL_FILES } from './files.ts';
import { Inspector } from './identity.ts';
import { judgeKubeconfig, kubeconfigIn, removeKubeconfig } from './kubeconfig.ts';
import { sweep, takeTurn } from './lay.ts';
import { REPLACED } from './names.ts';
import { type InstallOptions, sourcesOf } from './plan.ts';

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
