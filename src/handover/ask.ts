// How are the plugins of an attachment asked to hand it over?

import type { AnswerOf } from '../answers/kinds.ts';
import type { Conflist } from '../chain/config/conflist.ts';
import { isOwnExecutable } from '../chain/config/own-executable.ts';
import { findCached } from '../chain/records/remembered-add.ts';
import { callPlugins, findExecutable } from '../chain/run/call-plugins.ts';
import { buildRequest } from '../chain/run/request.ts';
import type { Attachment, ChainRuntime } from '../chain/run/runtime.ts';
import type { AttachmentId } from '../cni/attachment.ts';
import { HANDOVER_VARIABLE, type HandoverMode, parseHandoverReply } from '../cni/env.ts';
import type { JsonObject } from '../cni/json.ts';
import { convertResult } from '../cni/result.ts';

/** What one plugin has, or had, that only our executables can delete. */
export type PluginParts = AnswerOf<'HandoverList'>['items'][number]['links'][number];

/** An attachment with the result of its ADD if the caller has it; else the cached result is used. */
export interface Made extends Attachment, AttachmentId {
  readonly result?: JsonObject | undefined;
}

/**
 * Asks each of our plugins, in the order of the conflist, what the reference's DEL would leave behind, or to hand that over.
 * Third-party executables are not called: they delete what they made themselves.
 * @throws CniError of the first plugin that fails; the earlier ones have handed over, and a later call continues
 */
export async function handOver(
  list: Conflist,
  made: Made,
  mode: HandoverMode,
  runtime: ChainRuntime,
): Promise<PluginParts[]> {
  const { containerId, netns, ifname, args = [], capabilityArgs = {} } = made;
  const attachment: Attachment = { containerId, netns, ifname, args, capabilityArgs };
  const result = made.result ?? findCached(made, runtime)?.result;
  const prevResult = result && convertResult(result, list.version, 'result of ADD');
  const asking = { ...runtime, env: { ...(runtime.env ?? process.env), [HANDOVER_VARIABLE]: mode } };
  const found: PluginParts[] = [];
  for (const [index, entry] of list.plugins.entries()) {
    if (!isOursIn(runtime, entry.type)) continue;
    const request = buildRequest(list, entry, { prevResult, capabilityArgs });
    const call = { list, verb: 'CHECK', order: [index], attachment, requestFor: () => request } as const;
    for await (const reply of callPlugins({ ...call, read: parseHandoverReply }, asking)) {
      if ('error' in reply) throw reply.error;
      if (reply.value?.length) found.push({ link: entry.type, index, parts: reply.value });
    }
  }
  return found;
}

/** A missing executable cannot be asked; it will be noticed when it has to run DEL. */
function isOursIn(runtime: ChainRuntime, type: string): boolean {
  const { isOwn = isOwnExecutable } = runtime;
  try {
    return isOwn(findExecutable(type, runtime));
  } catch {
    return false;
  }
}
