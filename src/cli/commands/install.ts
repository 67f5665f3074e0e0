// What does `catena install` do?
import { basename, dirname, join } from 'node:path';
import { COMMAND_NAME, CORE_NAME } from '../../chain/config/core-name.ts';
import { loadFile } from '../../chain/config/load.ts';
import { isFront } from '../../chain/config/own-executable.ts';
import { defined } from '../../cni/defined.ts';
import { DEFAULT_BIN_DIR } from '../../cni/directories.ts';
import { absolutePath } from '../../files/absolute-path.ts';
import { checkPick, type Pick } from '../../install/check.ts';
import { renderKubeconfig } from '../../install/kubeconfig.ts';
import { findManifest } from '../../install/manifest.ts';
import { nameFirst, nameUsually } from '../../install/names.ts';
import { type InstallPlan, planInstall, type Step, type Wanted } from '../../install/plan.ts';
import { PRINTABLE, type Printable, printFor } from '../../install/print.ts';
import type { TextFile } from '../../install/units.ts';
import { readCandidates } from '../../runtimes/candidate.ts';
import { findMismatches, readConfigured } from '../../runtimes/configured.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { SHELLS } from '../completion/question.ts';
import { SCRIPT_PATHS, SCRIPTS } from '../completion/scripts.ts';
import { findOlderProblem } from '../install/older-release.ts';
import { renderShared } from '../install/shared-files.ts';
import { finishStarting, layDown, starterOf } from '../install/starting.ts';
import { noteDone } from '../log/events.ts';
import { manPages } from '../man/page.ts';
import { printAnswer } from '../output/print.ts';
import { confDirOf } from '../target.ts';
import { TOOL_VERSION } from '../tool-version.ts';

/**
 * Installs the executables and the conflist, prints what was done to each file, and whether the runtimes will use the conflist.
 */
export async function run(call: CommandCall): Promise<number> {
  const what = call.text('print');
  if (what !== undefined) return print(call, what);
  const { wanted, pluginDirs, reason } = await readWanted(call);
  const problem = findOlderProblem(call, wanted.binDir);
  if (problem !== undefined) throw new Error(`Cannot install: ${problem}`);
  const dryRun = call.on('dry-run');
  const starter = starterOf(call, wanted.binDir);
  const all = starter ? { ...wanted, starters: starter.files } : wanted;
  const plan = dryRun ? planInstall(all) : layDown(all, starter);
  const { conf, confDir } = wanted;
  const configured = readConfigured(call.text('etc') || '/etc');
  const place = { confDir, configured, ...(dryRun ? {} : { runtime: { pluginDirs } }) };
  const picks = conf ? await checkPick(place, conf.name, dryRun ? conf.text : undefined) : [];
  const after = dryRun ? { ok: true, notes: [] } : await finishStarting(call, plan, starter);
  const count = plan.steps.filter(({ action }) => action !== 'keep').length;
  if (!dryRun)
    noteDone(call, 'INSTALL', `${count} files of ${TOOL_VERSION} in "${wanted.binDir}" and elsewhere`);
  const ok = isGood(plan, picks, call.on('as-default')) && after.ok;
  const alone = wanted.source === wanted.core?.source ? [NO_FRONT] : [];
  const notes = [...alone, ...findMismatches(configured, confDir, wanted.binDir), ...after.notes];
  const noted = notes.map(note => `note: ${note}\n`).join('');
  await printAnswer(
    call,
    'Installation',
    { ok, steps: plan.steps, ...defined({ reason }), picks, notes },
    { text: () => `${render(plan, picks, reason, call.on('as-default'))}${noted}` },
  );
  return ok ? 0 : 1;
}

const NO_FRONT =
  'this build has no front, since there was no C compiler: its plugins and commands work without a daemon, also beside one';

/** Where executables and conflists are on this host, for {@link run} and for uninstall. */
export function placesOf(call: CommandCall) {
  const dirs = call.texts('bin-dir').map(dir => absolutePath(dir));
  const pluginDirs = dirs.length ? dirs : [DEFAULT_BIN_DIR];
  const [binDir = DEFAULT_BIN_DIR] = pluginDirs;
  if (!(process.argv[1] ?? '').startsWith('/$bunfs/')) {
    throw new Error('Cannot install: this is not the compiled executable; npm run build makes it');
  }
  const names = [...new Set([COMMAND_NAME, ...call.plugins.types])];
  const core = { source: process.execPath, name: CORE_NAME };
  const front = join(dirname(core.source), COMMAND_NAME);
  const source = isFront(front) ? front : core.source;
  return { binDir, pluginDirs, confDir: absolutePath(confDirOf(call)), source, names, core };
}

async function readWanted(call: CommandCall) {
  const { pluginDirs, names, ...places } = placesOf(call);
  const chosen = call.texts('link');
  const unknown = chosen.find(name => !names.includes(name));
  if (unknown !== undefined)
    throw new UsageError(`Cannot install "${unknown}": no such plugin; there are ${names.join(', ')}`);
  const [file] = call.positionals;
  const list = file === undefined ? undefined : loadFile(file);
  const named = list && (await nameOf(call, list.name, places));
  const wanted: Wanted = {
    ...places,
    names: chosen.length ? chosen : names,
    force: call.on('force'),
    ...kubeconfigOf(call),
    ...sharedOf(call),
    ...(list && named ? { conf: { name: named.name, text: ending(list.source) } } : {}),
  };
  return { wanted, pluginDirs, reason: named?.reason };
}

/** What shells and man read, if a directory for it is given. */
function sharedOf(call: CommandCall): { readonly shared?: readonly TextFile[] } {
  const given = call.text('share-dir');
  if (given === undefined) return {};
  const dir = absolutePath(given);
  return {
    shared: [
      ...SHELLS.map(shell => ({ path: join(dir, SCRIPT_PATHS[shell]), text: SCRIPTS[shell] })),
      ...manPages(call.table).map(({ name, text }) => ({ path: join(dir, 'man/man1', name), text })),
    ],
  };
}

/** A kubeconfig with the service account of the current pod, for programs on the host. */
function kubeconfigOf(call: CommandCall): { readonly kubeconfig?: string } {
  const [dir, onHost = dir] = [call.text('account'), call.text('account-on-host')];
  if (dir === undefined || onHost === undefined) return {};
  return { kubeconfig: renderKubeconfig({ dir, onHost }, call.env) };
}

async function nameOf(
  call: CommandCall,
  network: string,
  { binDir, confDir }: { binDir: string; confDir: string },
): Promise<{ name: string; reason?: string }> {
  const given = call.text('conf-name');
  if (given !== undefined) {
    if (basename(given) === given && given.endsWith('.conflist')) return { name: given };
    throw new UsageError(`Cannot name the list "${given}": it must be a file name that ends in ".conflist"`);
  }
  if (!call.on('as-default')) return { name: nameUsually(network) };
  const ours = Object.keys(findManifest(binDir)?.configurations ?? {});
  const others = (await readCandidates(confDir))
    .filter(({ name, extension }) => extension !== undefined && !ours.includes(name))
    .map(({ name }) => name);
  const name = nameFirst(network, others);
  const first =
    others[0] === undefined ? 'there is no other file' : `"${others[0]}" comes first among the others`;
  return { name, reason: `named "${name}", since runtimes use the first file by name, and ${first}` };
}

function isGood({ steps }: InstallPlan, picks: readonly Pick[], asDefault: boolean): boolean {
  const keptList = steps.some(({ place, action }) => place === 'conf' && action === 'keep');
  return !keptList && (!asDefault || picks.every(({ taken }) => taken));
}

function render(
  { wanted, steps }: InstallPlan,
  picks: readonly Pick[],
  reason: string | undefined,
  asDefault: boolean,
): string {
  const { binDir, confDir, conf } = wanted;
  const rows = (place: Step['place']) =>
    steps
      .filter(step => step.place === place)
      .map(({ name, action, why }) => `  ${action.padEnd(7)}  ${name}${why ? `: ${why}` : ''}`);
  const shared = steps.filter(({ place }) => place === 'shared');
  const shown = picks.map(({ runtime, taken, why }) => {
    return `${runtime.padEnd(10)}  ${taken ? 'uses it' : 'does not use it'}: ${why}`;
  });
  const hint = picks.some(({ taken }) => !taken) && !asDefault;
  return [
    binDir,
    ...rows('bin'),
    ...(wanted.starters
      ? [`daemon: ${wanted.starters.map(({ path }) => path).join(', ') || 'started by nothing here'}`]
      : []),
    ...rows('starter'),
    ...renderShared(shared),
    ...(conf || wanted.kubeconfig ? [confDir, ...rows('account'), ...rows('conf')] : []),
    ...(reason ? [reason] : []),
    ...shown,
    ...(hint
      ? ['--as-default gives the list a name that sorts first; catena networks --why explains all files']
      : []),
    '',
  ].join('\n');
}

/** The minor release in a version as `kubectl version` prints it. */
function minorOf(version: string): number {
  const [, minor] = /^v?1\.(\d+)/.exec(version) ?? [];
  if (minor === undefined) {
    throw new UsageError(`Cannot print for Kubernetes "${version}": a version is like 1.30 or v1.30.2`);
  }
  return Number(minor);
}

function print(call: CommandCall, what: string): number {
  const known = PRINTABLE.find(one => one === what);
  if (known === undefined) throw new UsageError(`Cannot print "${what}": there are ${PRINTABLE.join(', ')}`);
  const [binDir = DEFAULT_BIN_DIR] = call.texts('bin-dir');
  const [file] = call.positionals;
  const list = file === undefined ? undefined : loadFile(file);
  call.out(
    printFor(known satisfies Printable, {
      binDir: absolutePath(binDir),
      confDir: absolutePath(confDirOf(call)),
      version: TOOL_VERSION,
      asDefault: call.on('as-default'),
      withAccount: call.on('with-account'),
      withMetrics: call.on('with-metrics'),
      kubernetes: minorOf(call.text('kubernetes') || '1.30'),
      ...(list ? { list: { name: list.name, text: ending(list.source) } } : {}),
      home: dirname(process.execPath),
    }),
  );
  return 0;
}

function ending(text: string): string {
  return text.endsWith('\n') ? text : `${text}\n`;
}
