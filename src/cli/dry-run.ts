// What would a command call that attaches, changes or detaches, with --dry-run? They load this file only then.
import { type Change, changeNetwork } from '../chain/change.ts';
import type { Conflist, PluginEntry } from '../chain/config/conflist.ts';
import { findExecutable } from '../chain/config/find-plugin.ts';
import { findConfigOfAdd, findRemembered, idOf, withCachedArgs } from '../chain/records/known-add.ts';
import { buildRequest } from '../chain/run/call-plugins.ts';
import { type Attachment, type ChainRuntime, checkAttachment } from '../chain/run/runtime.ts';
import { CniError, decodingFailure, ErrorCode } from '../cni/errors.ts';
import { oneLine, renderTable } from '../lab/words.ts';
import type { RecordedAttachment } from '../node/facts.ts';
import { namesOf, readStorageNames } from '../node/names.ts';
import { titleOf } from '../node/words.ts';
import { maskSecrets } from '../observe/secrets.ts';
import { closeNetns, openNetns } from '../sys/netns.ts';
import type { AnswerOf } from './answers/kinds.ts';
import type { CommandCall } from './command.ts';
import { printAnswer } from './output/print.ts';
import { findUnread } from './target.ts';
import { widthOf } from './terminal/lines.ts';

type Plan = AnswerOf<'ChainPlan'>;

/** A chain, and which of its plugins are called for what. */
interface Planned {
  readonly verb: Plan['verb'];
  readonly list: Conflist;
  readonly attachment: Attachment;
  readonly runtime: ChainRuntime;
  /** Indexes in the list, in order. */
  readonly order: readonly number[];
}

export function showAdd(call: CommandCall, list: Conflist, attachment: Attachment, runtime: ChainRuntime) {
  checkAttachment(attachment, 'ADD', runtime);
  for (const warning of findUnread(list, attachment.capabilityArgs ?? {})) call.warn(warning);
  try {
    closeNetns(openNetns(attachment.netns));
  } catch (cause) {
    throw new CniError(ErrorCode.invalidNetns, (cause as Error).message, { cause });
  }
  return show(call, { verb: 'ADD', list, attachment, runtime, order: [...list.plugins.keys()] });
}

/** The plugins concerned have said that they could make the change. */
export async function showChange(
  call: CommandCall,
  one: RecordedAttachment,
  change: Change,
  runtime: ChainRuntime,
) {
  let planned: Planned | undefined;
  await changeNetwork(one, change, runtime, ({ list, attachment }, order) => {
    planned = { verb: 'SET', list, attachment, runtime, order };
    return false;
  });
  return show(call, planned as Planned);
}

/** @param given used if no configuration of its ADD is on record */
export function showDel(
  call: CommandCall,
  given: Conflist | undefined,
  attachment: Attachment & { readonly network?: string },
  runtime: ChainRuntime,
) {
  checkAttachment(attachment, 'DEL', runtime);
  const { network = call.positionals[0] ?? '' } = attachment;
  const known = findRemembered({ ...attachment, network }, runtime);
  const list = findConfigOfAdd(known, runtime) ?? given;
  if (list === undefined) {
    throw decodingFailure(
      `Cannot say how to detach from network "${network}": the configuration of its ADD is not on record`,
    );
  }
  const order = [...list.plugins.keys()].reverse();
  return show(call, { verb: 'DEL', list, attachment: withCachedArgs(attachment, known), runtime, order });
}

/** @throws CniError of a plugin without an executable, as the verb itself would */
async function show(call: CommandCall, { verb, list, attachment, runtime, order }: Planned): Promise<number> {
  const { capabilityArgs, containerId, args = [], netns } = attachment;
  const title = titleOf({ containerId, ...namesOf({ containerId, args, netns }, readStorageNames()) });
  const plan: Plan = {
    verb,
    ...idOf(list, attachment),
    netns,
    cniVersion: list.version,
    recorded: findRemembered(idOf(list, attachment), runtime) !== undefined,
    plugins: order.map(index => {
      const entry = list.plugins[index] as PluginEntry;
      const request = maskSecrets(buildRequest(list, entry, { capabilityArgs }));
      return { type: entry.type, executable: findExecutable(entry.type, runtime).path, request };
    }),
  };
  await printAnswer(call, 'ChainPlan', plan, () => renderPlan(plan, title, widthOf(call)));
  return 0;
}

const DONE = { ADD: 'attached to', SET: 'changed on', DEL: 'detached from' } as const;

function renderPlan(plan: Plan, title: string, width: number | undefined): string {
  const { verb, network, ifname, netns, recorded, plugins } = plan;
  const what = `interface ${ifname} of container ${title}${netns && ` (${netns})`}`;
  const said = `${what} would be ${DONE[verb]} network ${network}`;
  if (plugins.length === 0) return `${oneLine(`${what}: nothing would change on network ${network}`)}\n`;
  const rows = plugins.map(({ type, executable, request: { runtimeConfig } }) =>
    [type, executable, runtimeConfig === undefined ? '-' : JSON.stringify(runtimeConfig)].map(oneLine),
  );
  const notes = [
    ...(verb === 'ADD' && recorded ? ['an ADD of it is on record already'] : []),
    ...(verb === 'DEL' && !recorded ? ['no ADD of it is on record: the list is as it is now'] : []),
  ];
  const table = renderTable([['PLUGIN', 'EXECUTABLE', 'CAPABILITIES'], ...rows], width);
  return [
    `${oneLine(said)}; plugins, in the order of their calls:\n`,
    table,
    ...notes.map(note => `${note}\n`),
  ].join('');
}
