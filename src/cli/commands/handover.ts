// What does `catena handover` do?
import { existsSync } from 'node:fs';
import { absolutePath, isDirectory } from '../../files/read-file.ts';
import { type Handover, listAttached } from '../../node/handover/hand-over.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { findExecutables, handOverAll, handoverRuntime, renderHandovers } from '../handover/hand-over-all.ts';
import { readTitles } from '../node/read.ts';
import { printList } from '../output/print.ts';
import { pluginDirsOf } from '../target.ts';
import { during } from '../terminal/progress.ts';

/**
 * Makes existing attachments deletable by the executables of other directories, and prints the outcome for each. If only our
 * executables can delete one of them, none is changed, and the exit code is 1.
 */
export async function run(call: CommandCall): Promise<number> {
  const [network] = call.positionals;
  const named = call.texts('to').map(dir => absolutePath(dir, call.cwd));
  const dirs = named.length ? named : referenceDirs(pluginDirsOf(call));
  if (!dirs.length) {
    throw new UsageError(
      `Cannot hand over: --to <dir> is missing, and the reference is not in ${REFERENCE_DIRS.map(dir => `"${dir}"`).join(' or ')}`,
    );
  }
  const strange = dirs.find(dir => !isDirectory(dir));
  if (strange !== undefined) throw new UsageError(`Cannot hand over to "${strange}": it is not a directory`);
  const runtime = handoverRuntime(call);
  const attached = listAttached(network, runtime);
  const plan = {
    executables: findExecutables(new Set(attached.flatMap(({ types }) => types)), dirs),
    place: dirs.map(dir => `"${dir}"`).join(' or '),
    visible: [...dirs, ...runtime.pluginDirs],
    mode: call.on('dry-run') ? ('look' as const) : ('do' as const),
    force: call.on('force'),
  };
  const what = `${attached.length} attachments, and a trial of each kind`;
  const handovers = await during(call, 'handover', what, () => handOverAll(attached, plan, call, runtime));
  const text = () => `${renderHandovers(handovers, readTitles(call))}${renderRefusal(handovers)}`;
  await printList(call, 'HandoverList', handovers, text);
  return handovers.some(({ state }) => state === 'refused') ? 1 : 0;
}

/** Where distributions put the reference's executables. */
const REFERENCE_DIRS = ['/usr/lib/cni', '/usr/libexec/cni'];

/** @param own directories of our executables, which may be the same one */
export function referenceDirs(
  own: readonly string[],
  isThere: (path: string) => boolean = existsSync,
): string[] {
  return REFERENCE_DIRS.filter(dir => !own.includes(dir) && isThere(`${dir}/bridge`));
}

/** One that cannot be handed over keeps the others from it; after a handover with `--force` none is pending. */
function renderRefusal(handovers: readonly Handover[]): string {
  const number = (state: Handover['state']) => handovers.filter(one => one.state === state).length;
  if (!number('refused') || !number('pending') || number('handed over')) return '';
  return 'nothing was handed over: delete the refused containers first, name a network without them, or use --force for the others\n';
}
