// Can our executables be removed while attachments exist?
import { basename, dirname } from 'node:path';
import { absolutePath } from '../../files/read-file.ts';
import { count } from '../../lab/words.ts';
import { type Handover, isMadeIn, listAttached } from '../../node/handover/hand-over.ts';
import type { CommandCall } from '../command.ts';
import { REPLACED } from '../install/names.ts';
import type { UninstallStep } from '../install/uninstall.ts';
import { type Executables, findExecutables, handOverAll, handoverRuntime } from './hand-over-all.ts';

/** What was found and done. */
export interface HandoverOutcome {
  readonly handovers: readonly Handover[];
  /** Why our executables must stay, and what to do about it. */
  readonly refusal?: string;
}

/**
 * Checks every attachment with a plugin that this uninstallation removes: can the restored executable delete it? With
 * `--hand-over`, hands it over.
 */
export async function handOverBefore(
  call: CommandCall,
  binDir: string,
  steps: readonly UninstallStep[],
): Promise<HandoverOutcome> {
  const inBinDir = steps.filter(({ path }) => dirname(path) === binDir);
  const going = inBinDir.filter(({ action }) => action !== 'keep').map(({ path }) => basename(path));
  // Without its records and tables, no copy of our plugins elsewhere could delete an attachment either.
  const purges = call.on('purge');
  if ((!going.length && !purges) || call.on('force')) return { handovers: [] };
  const runtime = handoverRuntime(call);
  const concerned = purges ? call.plugins.types : going;
  const attached = listAttached(undefined, runtime).filter(
    one =>
      !one.isGone && (purges || isMadeIn(binDir, one)) && one.types.some(type => concerned.includes(type)),
  );
  if (!attached.length) return { handovers: [] };
  const [to, others] = [call.texts('to'), call.texts('bin-dir').slice(1)].map(dirs =>
    dirs.map(dir => absolutePath(dir, call.cwd)),
  ) as [string[], string[]];
  const executables: Executables = new Map([
    ...findExecutables(going, [...others, ...to]),
    ...findExecutables(
      attached.flatMap(({ types }) => types).filter(type => !going.includes(type)),
      [binDir, ...others, ...to],
    ),
    ...inBinDir.flatMap(({ path, action }) =>
      action === 'restore' ? [[basename(path), `${path}${REPLACED}`] as const] : [],
    ),
  ]);
  const handsOver = call.on('hand-over');
  const plan = {
    executables,
    force: false,
    visible: [binDir, ...others, ...to],
    place: to.length
      ? `"${binDir}" afterwards, nor in ${to.map(dir => `"${dir}"`).join(' or ')}`
      : `"${binDir}" afterwards`,
    mode: handsOver && !call.on('dry-run') ? ('do' as const) : ('look' as const),
  };
  const handovers = await handOverAll(attached, plan, call, runtime);
  const number = (state: Handover['state']) => handovers.filter(one => one.state === state).length;
  const [refused, pending] = [number('refused'), handsOver ? 0 : number('pending')];
  if (refused + pending === 0) return { handovers };
  const advice = [
    ...(pending ? ['--hand-over makes them deletable by the restored executables and continues'] : []),
    ...(refused && !to.length ? ['--to <dir> names the executables to use where none is restored'] : []),
    'or delete the containers first; --force uninstalls anyway and leaves them as they are',
  ];
  return {
    handovers,
    refusal: `${count(refused + pending, 'attachment')} could no longer be deleted; ${advice.join('; ')}`,
  };
}
