// What does a user of the `catena` command do?
import { EARLIER_BOOT } from '../../../src/attachments/hold.ts';
import type { Add, Change, Check, Del, Gc, Swap, Upkeep } from '../history.ts';
import type { Model } from '../model.ts';
import { NETS, podId, slotPath } from '../networks.ts';
import { type Ended, type RunSpec, run } from '../node.ts';
import type { Place } from '../place.ts';
import { HANGING_DEADLINE_MS } from './gates.ts';
import { judge, OK, type Outcome } from './outcome.ts';

const DEADLINE_MS = 15_000;
/** GC and repair work on many attachments. */
const LONG_DEADLINE_MS = 60_000;
/** A swap plays many lives of containers, each of some ten processes. */
const SWAP_DEADLINE_MS = 180_000;
const REFERENCE = '/usr/lib/cni';

/** `catena add`, `check` and `del`. */
export async function callCommand(place: Place, action: Add | Check | Del): Promise<Outcome> {
  const { kind, net, pod, slot, killMs, noCwd } = action;
  if ('running' in action && action.running) return callRunning(place, action);
  const { name, ifname } = NETS[net];
  const argv = [kind, name, slotPath(slot), '--container-id', podId(pod), '--ifname', ifname];
  const mapping = kind === 'add' && action.hostPort !== undefined ? mappingOf(action.hostPort) : undefined;
  const more = mapping === undefined ? [] : ['--cap', JSON.stringify(mapping)];
  if (kind === 'del' && action.forget) more.push('--forget');
  const hangs = kind === 'add' && action.foreign !== undefined;
  const deadlineMs = hangs ? HANGING_DEADLINE_MS : DEADLINE_MS;
  const ended = await catena(place, [...argv, ...more, ...dirs(place, net)], { killMs, noCwd, deadlineMs });
  const outcome = judge(`catena ${argv.slice(0, 2).join(' ')} ${podId(pod)}`, ended, 'stderr');
  // Only what is ours can keep it from success, and that is undone.
  if (!more.includes('--forget') || outcome.how !== 'failed' || outcome.isBusy) return outcome;
  return { ...outcome, violations: [{ rule: 'del --forget fails', text: outcome.said ?? '' }] };
}

/** `catena attach` and `detach`, which find the namespace themselves. */
async function callRunning(place: Place, action: Add | Del): Promise<Outcome> {
  const { kind, net, pod, killMs, noCwd } = action;
  const { name, ifname } = NETS[net];
  const verb = kind === 'add' ? 'attach' : 'detach';
  const mapping = kind === 'add' && action.hostPort !== undefined ? mappingOf(action.hostPort) : undefined;
  const argv =
    kind === 'add'
      ? [verb, podId(pod), name, '--ifname', ifname, '--conf-dir', place.confDir]
      : [verb, podId(pod), ifname, '--force'];
  const more = mapping === undefined ? [] : ['--cap', JSON.stringify(mapping)];
  const ended = await catena(place, [...argv, ...more, ...binOf(place, net)], { killMs, noCwd });
  return judge(`catena ${verb} ${name} ${podId(pod)}`, ended, 'stderr');
}

/** `catena set`. */
export async function change(place: Place, action: Change): Promise<Outcome> {
  const { net, pod, hostPort, rate, killMs, noCwd } = action;
  const { name, ifname } = NETS[net];
  const cap = hostPort === undefined ? [] : ['--cap', JSON.stringify(mappingOf(hostPort))];
  const limits = rate && { ingressRate: rate * 8, egressRate: rate * 8 };
  const conf = limits ? ['--conf', JSON.stringify({ bandwidth: limits })] : [];
  const argv = ['set', podId(pod), ifname, ...cap, ...conf, ...binOf(place, net)];
  return judge(`catena set ${name} ${podId(pod)}`, await catena(place, argv, { killMs, noCwd }), 'stderr');
}

/** `catena gc` with the list of the moment, or with an old one. */
export async function collect(
  place: Place,
  model: Model,
  action: Gc,
  known: ReadonlySet<string>,
): Promise<Outcome> {
  const { name, ifname } = NETS[action.net];
  const valid = [...known].flatMap(key => {
    const entry = model.entries.get(key);
    return entry?.net === action.net ? ['--valid', `${podId(entry.pod)}/${ifname}`] : [];
  });
  // Without any, the command wants to hear that none is meant.
  const argv = ['gc', name, ...(valid.length ? valid : ['--all']), ...dirs(place, action.net)];
  const ended = await catena(place, argv, { killMs: action.killMs, deadlineMs: LONG_DEADLINE_MS });
  return judge(`catena gc ${name}`, ended, 'stderr');
}

/** `catena repair`. */
export async function keepUp(place: Place, { kind, net, killMs }: Upkeep): Promise<Outcome> {
  const argv = [kind, NETS[net].name, '--bin-dir', place.bin(net), '--json'];
  const env = { NETCONFPATH: place.confDir };
  if (kind === 'stranger') return askElsewhere(place, net, env);
  const ended = await catena(place, argv, { killMs, env, deadlineMs: LONG_DEADLINE_MS });
  if (ended.exitCode !== 0 && !ended.killed && !ended.late && isReport(ended.stdout)) {
    return { how: 'failed', said: ended.stdout.replaceAll(/\s+/g, ' ').slice(0, 300) };
  }
  return judge(`catena ${kind}`, ended, 'stderr');
}

/** What is unsettled here is none of the business of a namespace that shares the files: DEL would find nothing there, and succeed. */
async function askElsewhere(
  place: Place,
  net: Upkeep['net'],
  env: NonNullable<RunSpec['env']>,
): Promise<Outcome> {
  const argv = ['repair', NETS[net].name, '--bin-dir', place.bin(net), '--dry-run', '--json'];
  const ended = await run(['unshare', '--net', place.catena, ...argv], { env, deadlineMs: DEADLINE_MS });
  if (!isReport(ended.stdout)) return judge('catena repair elsewhere', ended, 'stderr');
  const { recovered = [] } = JSON.parse(ended.stdout) as { recovered?: readonly { readonly why: string }[] };
  // Of an earlier boot no namespace is left, so what that left is settled by any.
  const theirs = recovered.filter(({ why }) => why !== EARLIER_BOOT);
  if (theirs.length === 0) return OK;
  const text = `it would delete ${JSON.stringify(theirs).slice(0, 300)}`;
  return { how: 'failed', violations: [{ rule: 'stranger: it settles what is not its own', text }] };
}

/** `catena swap`: the reference's plugin for ours, or ours again. */
export async function swap(place: Place, { net, plugin, undo }: Swap): Promise<Outcome> {
  const how = undo
    ? ['--undo']
    : ['--to', `${REFERENCE}/${plugin}`, '--accept-differences', '--scene', 'life'];
  const argv = ['swap', NETS[net].name, '--plugin', plugin, ...how, '--yes', ...dirs(place, net)];
  const ended = await catena(place, argv, { deadlineMs: SWAP_DEADLINE_MS });
  if (ended.exitCode !== 0 && !ended.late && isReport(ended.stdout)) {
    return { how: 'failed', said: ended.stdout.replaceAll(/\s+/g, ' ').slice(0, 300) };
  }
  return judge(`catena swap ${plugin}`, ended, 'stderr');
}

/** What a runtime passes for the port: the capability's arguments. */
export function mappingOf(hostPort: number): object {
  return { portMappings: [{ hostPort, containerPort: 80, protocol: 'tcp' }] };
}

function catena(place: Place, argv: string[], spec: RunSpec): Promise<Ended> {
  return run([place.catena, ...argv], { deadlineMs: DEADLINE_MS, ...spec });
}

function dirs(place: Place, net: Add['net']): string[] {
  return ['--conf-dir', place.confDir, '--bin-dir', place.bin(net), '--json'];
}

function binOf(place: Place, net: Add['net']): string[] {
  return ['--bin-dir', place.bin(net), '--json'];
}

/** Some commands report on standard output what they could not do. */
function isReport(text: string): boolean {
  try {
    return typeof JSON.parse(text) === 'object';
  } catch {
    return false;
  }
}
