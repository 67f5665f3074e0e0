// What would a command call that attaches, changes or detaches, with --dry-run?
import { changeNetwork } from '../chain/change.ts';
import type { Conflist, PluginEntry } from '../chain/config/conflist.ts';
import { findExecutable } from '../chain/config/find-plugin.ts';
import { findConfigOfAdd, findRemembered, idOf, withCachedArgs } from '../chain/records/known-add.ts';
import { buildRequest } from '../chain/run/call-plugins.ts';
import { type Attachment, type ChainRuntime, checkAttachment } from '../chain/run/runtime.ts';
import { CniError, decodingFailure, ErrorCode } from '../cni/errors.ts';
import { oneLine, renderTable } from '../lab/words.ts';
import { namesOf, readStorageNames } from '../node/names.ts';
import { titleOf } from '../node/words.ts';
import { maskSecrets } from '../observe/secrets.ts';
import { closeNetns, openNetns } from '../sys/netns.ts';
import type { AnswerOf } from './answers/kinds.ts';
import { capabilitiesOf } from './capability-options.ts';
import type { CommandCall, CommandModule } from './command.ts';
import { argsFor } from './commands/attach.ts';
import { loadOrRecall } from './commands/del.ts';
import { changeOf } from './commands/set.ts';
import { printAnswer } from './output/print.ts';
import { planAttach, refuseNeeded, whereRecorded } from './running/change.ts';
import { findKnown, findPlace, pickAttachment } from './running/container.ts';
import { attachmentOf, findUnread, loadTarget, runtimeOf } from './target.ts';
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

export const add: CommandModule = {
  run(call) {
    const attachment = attachmentOf(call);
    return showAdd(call, loadTarget(call), attachment, runtimeOf(call));
  },
};

export const attach: CommandModule = {
  run(call) {
    const [given = '', network = ''] = call.positionals;
    const list = loadTarget(call, network);
    const runtime = runtimeOf(call);
    const container = findKnown(given, call.cwd, runtime);
    const wanted = {
      network,
      ifname: call.text('ifname'),
      args: argsFor(container, call),
      capabilityArgs: capabilitiesOf(call),
    };
    return showAdd(call, list, planAttach(container, findPlace(container, runtime), wanted), runtime);
  },
};

/** `catena set --dry-run`; the plugins concerned have said that they could make the change. */
export const set: CommandModule = {
  async run(call) {
    const [container = '', what = ''] = call.positionals;
    const change = changeOf(call);
    const own = runtimeOf(call);
    const one = pickAttachment(findKnown(container, call.cwd, own), what);
    const runtime = whereRecorded(one, own);
    let planned: Planned | undefined;
    await changeNetwork(one, change, runtime, ({ list, attachment }, order) => {
      planned = { verb: 'SET', list, attachment, runtime, order };
      return false;
    });
    return show(call, planned as Planned);
  },
};

export const del: CommandModule = {
  run(call) {
    const attachment = attachmentOf(call);
    const runtime = runtimeOf(call);
    return showDel(call, loadOrRecall(call, attachment, runtime), attachment, runtime);
  },
};

export const detach: CommandModule = {
  run(call) {
    const [given = '', what = ''] = call.positionals;
    const own = runtimeOf(call);
    const container = findKnown(given, call.cwd, own);
    const one = pickAttachment(container, what);
    if (!call.on('force')) refuseNeeded(one, container);
    return showDel(call, undefined, one, whereRecorded(one, own));
  },
};

function showAdd(call: CommandCall, list: Conflist, attachment: Attachment, runtime: ChainRuntime) {
  checkAttachment(attachment, 'ADD', runtime);
  for (const warning of findUnread(list, attachment.capabilityArgs ?? {})) call.warn(warning);
  try {
    closeNetns(openNetns(attachment.netns));
  } catch (cause) {
    throw new CniError(ErrorCode.invalidNetns, (cause as Error).message, { cause });
  }
  return show(call, { verb: 'ADD', list, attachment, runtime, order: [...list.plugins.keys()] });
}

/** @param given used if no configuration of its ADD is on record */
function showDel(
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
