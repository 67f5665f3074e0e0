// What does `catena install` do?
import { basename, dirname, join } from 'node:path';
import compare from 'semver/functions/compare.js';
import valid from 'semver/functions/valid.js';
import { isFront } from '../../chain/config/find-plugin.ts';
import { loadFile } from '../../chain/config/load.ts';
import type { Runtime } from '../../chain/run/runtime.ts';
import { COMMAND_NAME, CORE_NAME, DEFAULT_BIN_DIR } from '../../cni/directories.ts';
import { attempt } from '../../cni/errors.ts';
import { defined, didYouMean } from '../../cni/json.ts';
import { renderOnDemand } from '../../daemon/on-demand.ts';
import { findRunning, succeed } from '../../daemon/running.ts';
import { identityOf } from '../../daemon/who-listens.ts';
import { absolutePath } from '../../files/read-file.ts';
import { count } from '../../lab/words.ts';
import { groupBy } from '../../node/doctor/finding.ts';
import { isMadeIn, listAttached } from '../../node/handover/hand-over.ts';
import type { AnswerOf } from '../answers/kinds.ts';
import { type CommandCall, pathOf, refuseOptions, runDirOf, TOOL_VERSION, UsageError } from '../command.ts';
import { SHELLS } from '../completion/question.ts';
import { SCRIPT_PATHS, SCRIPTS } from '../completion/scripts.ts';
import { findManifest, nameFirst, nameUsually } from '../install/files.ts';
import { renderKubeconfig } from '../install/kubeconfig.ts';
import { install } from '../install/lay.ts';
import { type InstallOptions, type InstallPlan, planInstall, type Step } from '../install/plan.ts';
import { printFor } from '../install/print.ts';
import type { Printable, PrintOptions } from '../install/print-options.ts';
import {
  enableUnits,
  installedStarter,
  isBooted,
  STARTERS,
  startersFor,
  type TextFile,
  withoutUnits,
} from '../install/units.ts';
import { noteDone } from '../log/events.ts';
import { manPages } from '../man/page.ts';
import { printAnswer } from '../output/print.ts';
import { type Configured, findMismatches, readConfigured } from '../runtimes/configured.ts';
import { candidateOf, choicesOf, type RuntimeName, readCandidates } from '../runtimes/rules.ts';
import { confDirOf, runtimeOf } from '../target.ts';

/**
 * Installs the executables and the conflist, prints what was done to each file, and whether the runtimes will use the conflist.
 */
export async function run(call: CommandCall): Promise<number> {
  if (call.positionals.length === 0) refuseOptions(call, 'without a list', 'as-default', 'conf-name');
  const what = call.text('print');
  if (what !== undefined) {
    call.out(printFor(what as Printable, printOptionsOf(call)));
    return 0;
  }
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
  const retired = plan.steps.flatMap(({ action, name }) => (action === 'retire' ? name : []));
  const picks = conf
    ? await checkPick(place, conf.name, dryRun ? { text: conf.text, retired } : undefined)
    : [];
  const after = dryRun ? { ok: true, notes: [] } : await finishStarting(call, plan, starter);
  const count = plan.steps.filter(({ action }) => action !== 'keep').length;
  if (!dryRun)
    noteDone(call, 'INSTALL', `${count} files of ${TOOL_VERSION} in "${wanted.binDir}" and elsewhere`);
  const keptList = plan.steps.some(({ place, action }) => place === 'conf' && action === 'keep');
  const isTaken = !call.on('as-default') || picks.every(({ taken }) => taken);
  const ok = !keptList && isTaken && after.ok;
  const alone = wanted.source === wanted.core?.source ? [NO_FRONT] : [];
  const notes = [...alone, ...findMismatches(configured, confDir, wanted.binDir), ...after.notes];
  const noted = notes.map(note => `note: ${note}\n`).join('');
  await printAnswer(
    call,
    'Installation',
    { ok, steps: plan.steps, ...defined({ reason }), picks, notes },
    () => `${render(plan, picks, reason, call.on('as-default'))}${noted}${remains(call, plan)}`,
  );
  return ok ? 0 : 1;
}

/** What a person must still do, after everything else. */
function remains({ env }: CommandCall, { wanted, steps }: InstallPlan): string {
  const kept = steps.filter(({ place, action }) => place === 'bin' && action === 'keep').length;
  const isInstalled = steps.some(({ place, name }) => place === 'bin' && name === COMMAND_NAME);
  const isInPath = !isInstalled || Bun.which(COMMAND_NAME, { PATH: env.PATH ?? '' }) !== null;
  const path = join(wanted.binDir, COMMAND_NAME);
  return [
    kept > 0 && `still of another package: ${count(kept, 'plugin')}; --force replaces them\n`,
    !isInPath && `"${COMMAND_NAME}" is not in PATH: ln -s ${path} /usr/local/bin/${COMMAND_NAME}\n`,
  ]
    .filter(Boolean)
    .join('');
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
  const chosen = call.texts('plugin');
  const unknown = chosen.find(name => ![...names, ...(call.plugins.aliases ?? [])].includes(name));
  if (unknown !== undefined)
    throw new UsageError(
      `Cannot install "${unknown}": no such plugin${didYouMean(unknown, names) || `; there are ${names.join(', ')}`}`,
    );
  const [file] = call.positionals;
  const list = file === undefined ? undefined : loadFile(file);
  const named = list && (await nameOf(call, list.name, places));
  const wanted: InstallOptions = {
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
  const dir = pathOf(call, 'share-dir');
  if (dir === undefined) return {};
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
    .filter(({ name, extension, list }) => {
      const isRetired = ours.includes(name) && list?.name === network;
      return extension !== undefined && !isRetired;
    })
    .map(({ name }) => name);
  const name = nameFirst(network, others);
  const first =
    others[0] === undefined ? 'there is no other file' : `"${others[0]}" comes first among the others`;
  return { name, reason: `named "${name}", since runtimes use the first file by name, and ${first}` };
}

function render(
  { wanted, steps }: InstallPlan,
  picks: readonly RuntimePick[],
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
    ...startersIn(wanted),
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

/** A DaemonSet brings its daemon, and installs no list: only beside a list is it worth a line that no call starts one. */
function startersIn({ starters, conf }: InstallOptions): string[] {
  if (starters)
    return [`daemon: ${starters.map(({ path }) => path).join(', ') || 'started by nothing here'}`];
  return conf
    ? ['daemon: none chosen; with --daemon on-demand calls start one, and take about a fifth of the time']
    : [];
}

/** The minor release in a version as `kubectl version` prints it. */
function minorOf(version: string): number {
  const [, minor] = /^v?1\.(\d+)/.exec(version) ?? [];
  if (minor === undefined) {
    throw new UsageError(`Cannot print for Kubernetes "${version}": a version is like 1.30 or v1.30.2`);
  }
  return Number(minor);
}

/** What printed texts depend on. @throws UsageError */
export function printOptionsOf(call: CommandCall): PrintOptions {
  const [binDir = DEFAULT_BIN_DIR] = call.texts('bin-dir');
  const [file] = call.positionals;
  const list = file === undefined ? undefined : loadFile(file);
  return {
    binDir: absolutePath(binDir),
    confDir: absolutePath(confDirOf(call)),
    version: TOOL_VERSION,
    asDefault: call.on('as-default'),
    withAccount: call.on('with-account'),
    withMetrics: call.on('with-metrics'),
    withDefinitions: call.on('with-definitions'),
    image: call.text('image') || `localhost/catena:${TOOL_VERSION}`,
    kubernetes: minorOf(call.text('kubernetes') || '1.30'),
    ...(list ? { list: { name: list.name, text: ending(list.source) } } : {}),
    home: dirname(process.execPath),
  };
}

function ending(text: string): string {
  return text.endsWith('\n') ? text : `${text}\n`;
}

/**
 * Why not: a newer release is installed, and this one need not know what its attachments consist of. Undefined if none exists, or
 * the installed release is not newer.
 */
function findOlderProblem(call: CommandCall, binDir: string): string | undefined {
  const installed = findManifest(binDir)?.catena;
  if (!valid(installed) || !installed || compare(installed, TOOL_VERSION) <= 0) return undefined;
  const standing = listAttached(undefined, runtimeOf(call)).filter(
    one => !one.isGone && isMadeIn(binDir, one),
  );
  const [first] = standing;
  if (first === undefined) return undefined;
  const { network, containerId, ifname } = first;
  return `release ${installed} in ${binDir} is newer than this one, ${TOOL_VERSION}, and may have made what this one cannot delete of ${count(standing.length, 'attachment')} (${network} ${containerId} ${ifname}); delete the containers, or run its "catena uninstall --hand-over --to <dir>" first`;
}

type SharedStep = Pick<Step, 'path' | 'why'> & { readonly action: string };

/** A line for all files to which the same happens for the same reason; a file with a reason of its own has its path. */
export function renderShared(steps: readonly SharedStep[]): string[] {
  const groups = groupBy(steps, ({ action, why = '' }) => `${action}\n${why}`);
  return [...groups.values()].flatMap(group => {
    const [first, ...others] = group;
    if (first === undefined) return [];
    const { action, why, path } = first;
    const what = others.length
      ? `${count(group.length, 'file')} below ${commonDir(group.map(one => one.path))}: shell completion and the manual`
      : path;
    return [`${action.padEnd(7)}  ${what}${why ? `: ${why}` : ''}`];
  });
}

function commonDir(paths: readonly string[]): string {
  let dir = dirname(paths[0] ?? '/');
  while (dir !== '/' && !paths.every(path => path.startsWith(`${dir}/`))) dir = dirname(dir);
  return dir;
}

/** Where systemd looks for an administrator's units, below `--etc`. */
const UNIT_DIR = 'systemd/system';
const HERE = `/etc/${UNIT_DIR}`;

type Starting = ReturnType<typeof starterOf>;

/** What is to start the daemon, as `--daemon` says or an earlier installation, and what did until now; undefined if neither says anything. */
function starterOf(call: CommandCall, binDir: string) {
  const given = call.text('daemon');
  const asked = STARTERS.find(one => one === given);
  const before = installedStarter(binDir);
  const starter = asked ?? before?.starter;
  if (starter === undefined) return undefined;
  const etc = call.text('etc');
  const [path] = before?.starter === 'systemd' ? before.paths : [];
  const unitDir =
    etc === undefined && path !== undefined ? dirname(path) : join(absolutePath(etc || '/etc'), UNIT_DIR);
  const onDemand = renderOnDemand({
    runDir: runDirOf(call),
    args: ['--log', 'none', '--idle-exit', '300'],
  });
  return {
    starter,
    before: before?.starter,
    files: startersFor(starter, { binDir, unitDir, onDemand }),
    // Whether the units are where this host's systemd looks.
    isHere: unitDir === HERE,
  };
}

/** Installs. Units that are no longer wanted are stopped while their files exist. */
function layDown(wanted: InstallOptions, starting: Starting): InstallPlan {
  const stops =
    starting?.before === 'systemd' && starting.starter !== 'systemd' && starting.isHere && isBooted();
  return withoutUnits(stops, () => install(wanted));
}

/** Enables the units, and has a daemon of the replaced executables replaced. */
async function finishStarting(
  call: CommandCall,
  { wanted, steps }: InstallPlan,
  starting: Starting,
): Promise<{ readonly ok: boolean; readonly notes: readonly string[] }> {
  const kept = steps.filter(({ place, action }) => place === 'starter' && action === 'keep');
  const notes = kept.map(({ path }) => `"${path}" was left as it is: the daemon is started as it says`);
  let ok = true;
  if (starting?.starter === 'systemd') {
    if (!starting.isHere)
      notes.push(
        `the units are in "${dirname(starting.files[0]?.path ?? '')}", which systemd does not read here`,
      );
    else if (!isBooted())
      notes.push(
        'systemd does not run here: the units have no effect until it does, and are enabled by systemctl enable catena.socket',
      );
    else {
      try {
        enableUnits();
      } catch (error) {
        ok = false;
        notes.push((error as Error).message);
      }
    }
  }
  const handover = call.on('keep-daemon') ? undefined : await replaceDaemon(call, wanted.binDir);
  return { ok: ok && handover?.ok !== false, notes: handover ? [...notes, handover.what] : notes };
}

/** Of a daemon that was started from these executables, and is another file than the one that is there now. */
async function replaceDaemon(call: CommandCall, binDir: string) {
  const executable = attempt(() => identityOf(join(binDir, CORE_NAME)));
  const daemon = await findRunning(runDirOf(call)).catch(() => undefined);
  // Built without a C compiler, every name is the same program, and a daemon has been started by one of them.
  const from = daemon?.state?.program;
  if (executable === undefined || !daemon?.state || from === undefined || dirname(from) !== binDir)
    return undefined;
  if (daemon.state.place?.executable === executable) return undefined;
  return succeed(daemon, executable);
}

/** Runtimes that use one file for every pod; the others are given a name each time. */
const BY_ORDER: readonly RuntimeName[] = ['containerd', 'CRI-O'];

type RuntimePick = AnswerOf<'Installation'>['picks'][number];

/**
 * Reads the directory as each runtime does, with the settings in its own configuration.
 * @param lookup.runtime where the plugins are; without it only the files are read
 * @param planned text of a file that does not exist yet
 */
async function checkPick(
  lookup: { confDir: string; configured: readonly Configured[]; runtime?: Runtime },
  name: string,
  planned?: { readonly text: string; readonly retired: readonly string[] },
): Promise<RuntimePick[]> {
  const there = await readCandidates(lookup.confDir, lookup.runtime);
  const others = there.filter(file => ![name, ...(planned?.retired ?? [])].includes(file.name));
  const files = planned === undefined ? there : [...others, candidateOf(name, planned.text)];
  files.sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  const choices = choicesOf(files, lookup.configured).filter(({ runtime }) => BY_ORDER.includes(runtime));
  return choices.map(({ runtime, files: taken, verdicts, problem }) => {
    const why = verdicts.find(({ file }) => file === name)?.why ?? 'there is no such file';
    const isTaken = taken.includes(name) && problem === undefined;
    const instead = isTaken || !taken[0] || taken[0] === name ? '' : `"${taken[0]}" is used: `;
    return { runtime, taken: isTaken, why: `${instead}${problem ?? why}` };
  });
}
