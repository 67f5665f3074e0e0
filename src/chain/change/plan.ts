// Which plugins does a change concern, and can they make it?
import { isDeepStrictEqual } from 'node:util';
import type { PluginEntry } from '../../cni/conflist.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { isOwnExecutable } from '../config/own-executable.ts';
import { buildRequest, findExecutable } from '../run/call-plugins.ts';
import type { ChainRuntime } from '../run/runtime.ts';
import { examinePart, type Goal } from './call.ts';

/**
 * Indexes of the plugins whose request changes, after each has said that it can make the change.
 * @throws CniError 7 for a foreign plugin and for an option that only ADD can set; of a plugin that cannot make the change
 */
export async function planChange(
  from: Goal,
  to: Goal,
  result: JsonObject,
  runtime: ChainRuntime,
): Promise<number[]> {
  const concerned = [...to.list.plugins.keys()].filter(
    index => !isDeepStrictEqual(requestOf(from, index), requestOf(to, index)),
  );
  for (const index of concerned) refuseForeign(to, index, runtime);
  for (const index of concerned) {
    const { options } = await examinePart(to, index, result, runtime);
    refuseFixed(from.list.plugins[index], to.list.plugins[index], options);
  }
  return concerned;
}

function requestOf({ list, capabilityArgs }: Goal, index: number): JsonObject {
  return buildRequest(list, list.plugins[index] as PluginEntry, { capabilityArgs });
}

/** Only its own DEL and ADD could change what a foreign plugin made, and they may recreate the interface. */
function refuseForeign({ list }: Goal, index: number, runtime: ChainRuntime): void {
  const { type } = list.plugins[index] as PluginEntry;
  const { path, stat } = findExecutable(type, runtime);
  const { isOwn = isOwnExecutable } = runtime;
  if (isOwn(path, stat)) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot change the attachment: plugin "${type}" ("${path}") is not Catena's and changes nothing in place; ` +
      'install ours for it (catena swap), or run DEL and ADD',
  );
}

function refuseFixed(
  { conf: before }: PluginEntry = NONE,
  { type, conf: after }: PluginEntry = NONE,
  changeable: readonly string[],
): void {
  const allowed = new Set(changeable.map(key => key.toLowerCase()));
  const keys = new Set([...Object.keys(before), ...Object.keys(after)]);
  const fixed = [...keys].find(
    key => !allowed.has(key.toLowerCase()) && !isDeepStrictEqual(before[key], after[key]),
  );
  if (fixed === undefined) return;
  throw new CniError(
    ErrorCode.invalidConfig,
    `Cannot change "${fixed}" of plugin "${type}" while the container runs; it can change ${changeable.join(', ') || 'capabilities only'}`,
  );
}

const NONE: PluginEntry = { type: '', capabilities: {}, conf: {} };
