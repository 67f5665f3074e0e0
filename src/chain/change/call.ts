// How is one plugin asked to change its part of an attachment?
import type { AttachmentRecord, Settings } from '../../attachments/store.ts';
import type { PluginEntry } from '../../cni/conflist.ts';
import { CHANGE_VARIABLE, type ChangeMode, type ChangeReply, parseChangeReply } from '../../cni/env.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';
import { type Conflist, parseFrozen } from '../config/conflist.ts';
import { buildRequest, callPlugins } from '../run/call-plugins.ts';
import type { Attachment, ChainRuntime } from '../run/runtime.ts';

/** An attachment on the way to settings, which may be those that it had. */
export interface Goal {
  readonly attachment: Attachment;
  readonly list: Conflist;
  readonly capabilityArgs: JsonObject;
}

/** The attachment of a record with other settings. @throws CniError 6 and 7 for a list that cannot be used */
export function goalOf(record: AttachmentRecord, { capabilityArgs, source }: Settings): Goal {
  const { containerId, netns, ifname, args } = record;
  const attachment = { containerId, netns, ifname, args, capabilityArgs };
  return { attachment, list: parseFrozen(source), capabilityArgs };
}

/**
 * Has plugins change their part, in the given order, each with the result of the one before.
 * @param onCall called with the index of each plugin before its call
 * @returns the last result
 * @throws CniError of the first plugin that fails
 */
export async function changeParts(
  goal: Goal,
  plugins: readonly number[],
  result: JsonObject,
  runtime: ChainRuntime,
  onCall: (index: number) => void = () => {},
): Promise<JsonObject> {
  let last = convertResult(result, goal.list.version, 'recorded result') as JsonObject;
  for (const index of plugins) {
    onCall(index);
    last = (await callOne(goal, index, last, 'do', runtime)).changed;
  }
  return last;
}

/** Asks a plugin whether it could change its part, and which options it can change. @throws CniError if it could not */
export async function examinePart(
  goal: Goal,
  index: number,
  result: JsonObject,
  runtime: ChainRuntime,
): Promise<ChangeReply> {
  const prevResult = convertResult(result, goal.list.version, 'recorded result') as JsonObject;
  return await callOne(goal, index, prevResult, 'look', runtime);
}

async function callOne(
  { attachment, list, capabilityArgs }: Goal,
  index: number,
  prevResult: JsonObject,
  mode: ChangeMode,
  runtime: ChainRuntime,
): Promise<ChangeReply> {
  const entry = list.plugins[index] as PluginEntry;
  const request = buildRequest(list, entry, { prevResult, capabilityArgs });
  const call = { list, verb: 'CHECK', order: [index], attachment, requestFor: () => request } as const;
  const asking = { ...runtime, env: { ...(runtime.env ?? process.env), [CHANGE_VARIABLE]: mode } };
  for await (const reply of callPlugins({ ...call, read: parseChangeReply }, asking)) {
    if ('error' in reply) throw reply.error;
    if (reply.value) return reply.value;
  }
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot change the attachment: the executable of plugin "${entry.type}" is of a release that changes nothing in place; run DEL and ADD`,
  );
}
