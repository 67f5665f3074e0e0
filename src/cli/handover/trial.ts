// Can other executables delete what ours created and handed over? (tried in namespaces of its own, with the same conflist)
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Conflist } from '../../chain/config/conflist.ts';
import { renderCniArgs } from '../../cni/cni-args.ts';
import type { CompareReport } from '../../compare/report.ts';
import { DELETED_AFTER_HANDOVER } from '../../compare/scene.ts';
import type { HandedAttachment } from '../../handover/attachments.ts';
import { runOwnCommand } from '../../lab/own-command.ts';
import type { CommandCall } from '../command.ts';

/** The attachments of one conflist with the same kinds of capability arguments: what holds for one of them holds for all. */
export interface Kind {
  readonly list: Conflist;
  readonly example: HandedAttachment;
}

/** A key that is equal for attachments of the same kind. */
export function kindOf({ list, capabilityArgs }: HandedAttachment): string {
  return JSON.stringify([list?.source, Object.keys(capabilityArgs).sort()]);
}

/**
 * Runs the conflist with our plugins, hands over, and has the other executables delete.
 * @param dir directory with the other executables, to which the conflist is written
 * @param visible directories that these executables need
 * @returns why it does not work; undefined if it does
 */
export async function findTrialProblem(
  { list, example }: Kind,
  dir: string,
  visible: readonly string[],
  call: CommandCall,
): Promise<string | undefined> {
  const file = join(dir, 'list.conflist');
  const plugins = list.plugins.map(({ conf }) => conf);
  writeFileSync(file, JSON.stringify({ cniVersion: list.version, name: list.name, plugins }));
  const { args, capabilityArgs, ifname } = example;
  const dirs = [dirname(process.execPath), ...visible];
  const argv = [
    ...['compare', '--json', '--with', dir, '--scene', DELETED_AFTER_HANDOVER, '--ifname', ifname],
    ...(args.length ? ['--args', renderCniArgs(args)] : []),
    ...(Object.keys(capabilityArgs).length ? ['--cap', JSON.stringify(capabilityArgs)] : []),
    ...dirs.flatMap(one => ['--bin-dir', one]),
    file,
  ];
  const { stdout, stderr, exitCode } = await runOwnCommand(argv, call);
  if (!stdout.startsWith('{')) return `the trial failed: ${stderr.trim() || `exit code ${exitCode}`}`;
  const { crossings } = JSON.parse(stdout) as CompareReport;
  const [crossing] = crossings;
  if (crossing === undefined) return 'the trial gave no result';
  const { untried, fails, left } = crossing;
  if (untried !== undefined) return `the trial failed, since ADD fails in temporary namespaces: ${untried}`;
  if (fails.length) return `DEL still fails: ${fails.join('; ')}`;
  return left.length ? `DEL leaves ${left.join('; ')}` : undefined;
}
