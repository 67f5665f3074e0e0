// What does `catena uninstall` do?

import { basename, dirname, join } from 'node:path';
import { removeOwnRoutes } from '../../between/apply.ts';
import { listNetworks } from '../../chain/config/load.ts';
import { cacheDirOf } from '../../cni/directories.ts';
import { attempt } from '../../cni/errors.ts';
import { defined } from '../../cni/json.ts';
import {
  backupDirsOf,
  giveBackOf,
  leaseDirsOf,
  loadAbouts,
  type SharedChain,
} from '../../cni/plugin-about.ts';
import { findRunning, stopRunning } from '../../daemon/running.ts';
import { identityOf } from '../../daemon/who-listens.ts';
import { absolutePath, namesIn } from '../../files/read-file.ts';
import { DEFAULT_DATA_DIR } from '../../ipam/lease-files.ts';
import { count } from '../../lab/words.ts';
import { readRecords } from '../../node/facts.ts';
import { listAttached } from '../../node/handover/hand-over.ts';
import {
  listElementOwners,
  type PurgePlaces,
  type PurgeStep,
  purgeFiles,
  purgeIptables,
  purgeKernel,
} from '../../node/purge.ts';
import { collectGone, type GoneAttachment } from '../../watch/collect-gone.ts';
import { type CommandCall, runDirOf } from '../command.ts';
import { type HandoverOutcome, handOverBefore, renderHandovers } from '../handover/hand-over-all.ts';
import { planUninstall, type UninstallStep, uninstall } from '../install/lay.ts';
import { installedStarter, isBooted, withoutUnits } from '../install/units.ts';
import { noteDone } from '../log/events.ts';
import { readTitles } from '../node/read.ts';
import { printAnswer } from '../output/print.ts';
import { confDirOf, runtimeOf, stateDirOf } from '../target.ts';
import { placesOf } from './install.ts';

/**
 * Removes the installed files, with `--purge` everything else of ours as well, and prints what was done to each. Nothing is
 * removed, and the exit code is 1, if there are attachments that the restored executables cannot delete.
 */
export async function run(call: CommandCall): Promise<number> {
  const places = placesOf(call);
  const plan = planUninstall(places);
  const purges = call.on('purge');
  const purgePlaces = purges ? await purgePlacesOf(call, places.pluginDirs) : undefined;
  // What a purge deletes has its name from before.
  const titleOf = readTitles(call);
  const gone = purges ? await deleteGone(call) : [];
  const handedOver = await handOverBefore(call, places.binDir, plan);
  const refusal = handedOver.refusal ?? (purges ? findPurgeObstacle(gone, call) : undefined);
  const { paths = [] } = installedStarter(places.binDir) ?? {};
  const isManaged = paths.some(path => path.startsWith('/etc/systemd/')) && isBooted();
  const remove = () => withoutUnits(isManaged, () => uninstall(places));
  const daemon = refusal === undefined ? await endDaemon(call, plan, purges) : undefined;
  // Before the kubeconfig is removed.
  const left = purges && refusal === undefined ? await leavePools(call) : [];
  const steps = refusal !== undefined ? [] : call.on('dry-run') ? plan : remove();
  const rest = refusal === undefined && purgePlaces ? purge(purgePlaces, call.on('dry-run')) : [];
  const purged = [...(daemon ? [daemon] : []), ...left, ...rest];
  // Of a purge nothing is left, this note included.
  if (refusal === undefined && !purges && !call.on('dry-run'))
    noteDone(call, 'UNINSTALL', `${steps.length} files of "${places.binDir}" and "${places.confDir}"`);
  const done = {
    ...handedOver,
    refusal,
    steps,
    ...(refusal === undefined && (purges || daemon) ? { purged } : {}),
  };
  const nothing = `nothing that was installed is left in ${places.binDir} or ${places.confDir}\n`;
  const attachments = done.handovers.length ? done.handovers : undefined;
  const answer = { steps: done.steps, ...defined({ purged: done.purged, attachments, refusal }) };
  await printAnswer(call, 'Uninstallation', answer, () => render(done, nothing, titleOf));
  return refusal === undefined ? 0 : 1;
}

interface Done extends Pick<HandoverOutcome, 'handovers'> {
  readonly refusal: string | undefined;
  readonly steps: readonly UninstallStep[];
  readonly purged?: readonly PurgeStep[];
}

function render(
  { handovers, refusal, steps, purged = [] }: Done,
  nothing: string,
  titleOf: ReturnType<typeof readTitles>,
): string {
  const shown = handovers.length ? renderHandovers(handovers, titleOf) : '';
  if (refusal !== undefined) return `${shown}nothing was uninstalled: ${refusal}\n`;
  const rows = [...steps.map(({ path, ...step }) => ({ ...step, what: path })), ...purged];
  const lines = rows.map(({ action, what, why }) => `${action.padEnd(7)}  ${what}${why ? `: ${why}` : ''}\n`);
  return `${shown}${lines.join('') || nothing}`;
}

/** Deletes attachments that outlived their namespace, while there are plugins for it. */
async function deleteGone(call: CommandCall): Promise<GoneAttachment[]> {
  const [runtime, scope] = [runtimeOf(call), { graceMs: 0, dryRun: call.on('dry-run') }];
  return await collectGone(() => readRecords(runtime).standing, scope, runtime);
}

/** Why rules or records must stay; undefined if only what belongs to no attachment is left, apart from what was handed over. */
function findPurgeObstacle(gone: readonly GoneAttachment[], call: CommandCall): string | undefined {
  if (call.on('force')) return undefined;
  const stuck = gone.filter(({ state }) => state === 'failed' || state === 'kept');
  if (stuck[0]) {
    const { network, containerId, ifname, why, error } = stuck[0];
    return `${count(stuck.length, 'attachment')} may have outlived its namespace and was not deleted (${network} ${containerId} ${ifname}: ${error?.message ?? why}); delete it with catena del, or --force leaves it`;
  }
  // Those that a dry run would hand over still have their elements.
  const owners = call.on('dry-run') ? [] : listElementOwners();
  if (!owners.length) return undefined;
  return `rules of ${count(owners.length, 'attachment')} would be removed (${owners[0]}); delete the container, or what it left with catena gc <network> --foreign; --force removes the rules`;
}

/** Gives back what this node holds of the pools of its cluster; to be asked while there are lists, notes and the kubeconfig. */
async function leavePools(call: CommandCall): Promise<PurgeStep[]> {
  const find = await loadAbouts(call.plugins.find, call.plugins.types);
  const steps: PurgeStep[] = [];
  for (const { list } of listNetworks(confDirOf(call)).networks) {
    try {
      const names = await giveBackOf(list, find, call.on('dry-run'));
      steps.push(...names.map(name => ({ action: 'remove' as const, what: `claim of block "${name}"` })));
    } catch (cause) {
      const why = `${(cause as Error).message}; delete the Block and Address objects of this node`;
      steps.push({ action: 'keep', what: `claims of network "${list.name}"`, why });
    }
  }
  return steps;
}

/** Where our files are, and which chains are shared. */
interface ToPurge extends PurgePlaces {
  readonly chains: readonly SharedChain[];
}

/** To be asked before conflists and records are removed. */
async function purgePlacesOf(call: CommandCall, binDirs: readonly string[]): Promise<ToPurge> {
  const runtime = runtimeOf(call);
  const { types } = call.plugins;
  const find = await loadAbouts(call.plugins.find, types);
  const lists = [
    ...listNetworks(confDirOf(call)).networks.map(({ list }) => list),
    ...listAttached(undefined, runtime).flatMap(({ list }) => list ?? []),
  ];
  const cacheDir = cacheDirOf(runtime);
  const usual = namesIn(DEFAULT_DATA_DIR).map(name => join(DEFAULT_DATA_DIR, name));
  const leaseDirs = [...new Set([...usual, ...lists.flatMap(list => leaseDirsOf(list, find))])];
  const backupDirs = lists.flatMap(list => backupDirsOf(list, find));
  const parents = [...leaseDirs, ...backupDirs, join(DEFAULT_DATA_DIR, '-')].map(dir => dirname(dir));
  return {
    runDir: runDirOf(call),
    stateDir: absolutePath(stateDirOf(call), call.cwd),
    leaseDirs,
    binDirs,
    shared: [
      ...backupDirs,
      // One that was made for all networks, not one of the operator's.
      ...parents.filter(dir => ['networks', 'cni'].includes(basename(dir))),
      ...types.flatMap(type => [join(cacheDir, type, 'results'), join(cacheDir, type)]),
      join(cacheDir, 'results'),
      cacheDir,
    ],
    types,
    chains: types.flatMap(type => find(type)?.sharedChains ?? []),
  };
}

/**
 * Ends a daemon of the executables that are removed, and with a purge any other. It would serve nothing, and where it puts back what lists
 * have lost, it would write our plugins into the list of before.
 * @throws Error if it does not end; nothing was removed then
 */
async function endDaemon(
  call: CommandCall,
  plan: readonly UninstallStep[],
  isAny: boolean,
): Promise<PurgeStep | undefined> {
  const daemon = await findRunning(runDirOf(call));
  const removed = plan.flatMap(({ path, action }) =>
    action === 'keep' ? [] : (attempt(() => identityOf(path)) ?? []),
  );
  const isOfThem = removed.includes(daemon?.state?.place?.executable ?? '');
  if (daemon === undefined || !(isAny || isOfThem)) return undefined;
  const problem = call.on('dry-run') ? undefined : await stopRunning(daemon);
  if (problem !== undefined)
    throw new Error(
      `Cannot stop the daemon on "${daemon.socket}": ${problem}; end it and repeat the command`,
    );
  return { action: 'remove', what: `daemon, process ${daemon.state?.pid ?? 'unknown'}` };
}

/** Removes what daemon and plugins have left in the kernel and on disk. */
function purge(places: ToPurge, dryRun: boolean): PurgeStep[] {
  // Those to other nodes. Their devices and rules go with all others of ours.
  const routes = removeOwnRoutes(dryRun);
  return [
    ...routes.map(what => ({ action: 'remove' as const, what })),
    ...purgeKernel(dryRun),
    ...purgeIptables(places.chains, dryRun),
    ...purgeFiles(places, dryRun),
  ];
}
