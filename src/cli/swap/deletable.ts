// Could the new executable of a plugin delete the existing attachments?
import { dirname } from 'node:path';
import { FRONT } from '../../chain/config/front-program.ts';
import { visitAll } from '../../chain/run/visits.ts';
import type { CompareReport } from '../../compare/report.ts';
import { DELETED_BY_B } from '../../compare/scene.ts';
import { listAttached } from '../../handover/attachments.ts';
import { handOverOne } from '../../handover/hand-over.ts';
import { findDigest } from '../../install/swap.ts';
import { count } from '../../lab/words.ts';
import type { AttachmentCheck } from '../../watch/check-all.ts';
import type { CommandCall } from '../command.ts';
import { handoverRuntime } from '../handover/runtime.ts';
import type { Survey } from './survey.ts';

/** What is known about the plugin and its current executable. */
export type Changing = Pick<Survey, 'link' | 'target' | 'digest'>;

/**
 * Why a swap would leave attachments that nothing can delete; undefined if it would not. Attachments that were already handed
 * over do not count.
 * @param candidate path of the new executable
 */
export async function findUndeletable(
  { link: type, target, digest }: Changing,
  candidate: string,
  { crossings }: Pick<CompareReport, 'crossings'>,
  before: readonly AttachmentCheck[],
  call: CommandCall,
): Promise<string | undefined> {
  const crossing = crossings.find(({ scene }) => scene === DELETED_BY_B);
  const { fails = [], left = [] } = crossing ?? {};
  if (!fails.length && !left.length) return undefined;
  const isOurs = isThisExecutable(digest);
  const concerned = isOurs ? await countPending(type, call) : before.length;
  if (concerned === 0) return undefined;
  const what = fails.length
    ? `its DEL fails for current attachments (${fails[0]})`
    : `its DEL leaves ${count(left.length, 'thing')} of current attachments (${left[0]})`;
  const way = isOurs
    ? `run "catena handover --to ${dirname(candidate)} --to ${dirname(target)}" first`
    : 'delete the containers first';
  return `${what}, and ${count(concerned, 'attachment')} could no longer be deleted cleanly; ${way}, or --force swaps anyway`;
}

/** Like {@link findUndeletable}, for the executable that an undo restores. All that is known about it is that it is not ours. */
export async function findUndoProblem(
  { link: type, target, digest }: Changing,
  kept: string,
  call: CommandCall,
): Promise<string | undefined> {
  if (!isThisExecutable(digest) || isThisExecutable(kept)) return undefined;
  const concerned = await countPending(type, call);
  if (concerned === 0) return undefined;
  const places = `--to <its dir> --to ${dirname(target)}`;
  return `the previous executable may not be able to delete ${count(concerned, 'attachment')} that the current one created; run "catena handover ${places}" first, or --force undoes anyway`;
}

function isThisExecutable(digest: string): boolean {
  return digest === findDigest(process.execPath) || digest === FRONT?.sha256;
}

/** Number of attachments with the plugin that only our executables can delete. */
async function countPending(type: string, call: CommandCall): Promise<number> {
  const runtime = handoverRuntime(call);
  const concerned = listAttached(undefined, runtime).filter(
    ({ isGone, types }) => !isGone && types.includes(type),
  );
  const looked = await visitAll(concerned, { groupOf: ({ network }) => network }, one =>
    handOverOne(one, 'look', runtime),
  );
  return looked.filter(
    ({ state, links }) =>
      state === 'refused' || (state !== 'ready' && links.some(({ link }) => link === type)),
  ).length;
}
