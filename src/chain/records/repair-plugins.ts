// What have the plugins of an attachment lost, and what of it can they put back?
import type { RememberedAdd } from '../../attachments/store.ts';
import { REPAIR_VARIABLE } from '../../cni/env.ts';
import { type CniError, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';
import type { Conflist } from '../config/conflist.ts';
import { buildRequest, callAll } from '../run/call-plugins.ts';
import { acceptResult, IGNORED, type ReadReply } from '../run/plugin-outcome.ts';
import type { Attachment, ChainRuntime } from '../run/runtime.ts';

/** How a repair goes about it. */
export interface RepairMeans {
  /** Change nothing: plugins get CHECK only. */
  readonly dryRun?: boolean;
  /**
   * Run ADD again for chained plugins that do not support repair. Most of them only add rules, but only the person who chose
   * a plugin knows what it does.
   */
  readonly foreign?: boolean;
}

/** The condition of one plugin's part of an attachment. */
export interface PluginCondition {
  readonly link: string;
  readonly index: number;
  /** `sound`: CHECK passes. `mended`: CHECK passes after something was put back. `broken`: CHECK fails. */
  readonly state: 'sound' | 'mended' | 'broken';
  /** What CHECK reported first. */
  readonly problem?: string;
  /** What CHECK still reports. */
  readonly error?: CniError;
}

/** The condition of an attachment whose plugins are in these conditions. */
export function worstOf(plugins: readonly PluginCondition[]): PluginCondition['state'] {
  const states = ['broken', 'mended'] as const;
  return states.find(one => plugins.some(({ state }) => state === one)) ?? 'sound';
}

/** What the plugins of an attachment are called with. */
type RepairedAdd = Pick<
  RememberedAdd,
  'result' | 'containerId' | 'netns' | 'ifname' | 'args' | 'capabilityArgs'
>;

/** Has every plugin check its part and, if that fails, put back what is missing. */
export async function repairPlugins(
  list: Conflist,
  add: RepairedAdd,
  means: RepairMeans,
  runtime: ChainRuntime,
): Promise<PluginCondition[]> {
  const { result, containerId, netns, ifname, args, capabilityArgs } = add;
  const attachment: Attachment = { containerId, netns, ifname, args, capabilityArgs };
  const prevResult = result && convertResult(result, list.version, 'recorded result');
  const repairing = { ...runtime, env: { ...(runtime.env ?? process.env), [REPAIR_VARIABLE]: '1' } };
  const plugins: PluginCondition[] = [];
  for (const [index, entry] of list.plugins.entries()) {
    const call = (how: ChainRuntime) => () =>
      callOne(list, 'CHECK', index, prevResult, attachment, how, IGNORED);
    const addAgain = async () => {
      const read: ReadReply<JsonObject> = (stdout, plugin) => acceptResult(stdout, list.version, plugin);
      await callOne(list, 'ADD', index, prevResult, attachment, runtime, read);
      await call(runtime)();
    };
    const link = { link: entry.type, index };
    const problem = await failureOf(call(runtime));
    if (problem === undefined) {
      plugins.push({ ...link, state: 'sound' });
      continue;
    }
    let error: CniError | undefined = problem;
    // The other plugins would put back rules for an interface that does not exist.
    const isLost = means.dryRun || plugins[0]?.state === 'broken';
    if (!isLost) error = await failureOf(call(repairing));
    // The ADD of a first plugin would create a second interface.
    if (error && means.foreign && !isLost && index > 0) error = await failureOf(addAgain);
    const found = { problem: problem.message, ...(error ? { error } : {}) };
    plugins.push({ ...link, state: error ? 'broken' : 'mended', ...found });
  }
  return plugins;
}

async function callOne(
  list: Conflist,
  verb: 'CHECK' | 'ADD',
  index: number,
  prevResult: JsonObject | undefined,
  attachment: Attachment,
  runtime: ChainRuntime,
  read: ReadReply<unknown>,
): Promise<void> {
  const entry = list.plugins[index];
  if (entry === undefined) return;
  const request = buildRequest(list, entry, { prevResult, capabilityArgs: attachment.capabilityArgs });
  await callAll({ list, verb, order: [index], read, attachment, requestFor: () => request }, runtime);
}

async function failureOf(work: () => Promise<void>): Promise<CniError | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    return toCniError(error);
  }
}
