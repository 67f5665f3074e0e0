// Which settings does an attachment have after a change?

import type { Settings } from '../../attachments/store.ts';
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { isObject, type JsonObject, parseObject } from '../../cni/json.ts';
import { type Conflist, isSinglePlugin, parseFrozen } from '../config/conflist.ts';

/** What is to change; everything else stays. */
export interface Change {
  /** Arguments by capability, each replaced as a whole; null takes one away. */
  readonly capabilityArgs?: JsonObject;
  /** Options by plugin, which is named by its type or, if several have that type, by its index; null takes an option away. */
  readonly options?: Readonly<Record<string, JsonObject>>;
}

/**
 * The settings after a change.
 * @throws CniError 7 for a plugin that the list does not have, and for a capability that none of its plugins declares
 */
export function applyChange(settings: Settings, { capabilityArgs = {}, options = {} }: Change): Settings {
  const list = parseFrozen(settings.source);
  refuseUndeclared(list, capabilityArgs);
  return {
    capabilityArgs: merge(settings.capabilityArgs, capabilityArgs),
    source: Object.keys(options).length ? withOptions(settings.source, list, options) : settings.source,
  };
}

function refuseUndeclared({ name, plugins }: Conflist, given: JsonObject): void {
  const declared = plugins.flatMap(({ capabilities }) =>
    Object.keys(capabilities).filter(capability => capabilities[capability]),
  );
  const stray = Object.keys(given).find(capability => !declared.includes(capability));
  if (stray === undefined) return;
  const found = declared.length ? `declared are ${quoteAll(declared)}` : 'none is declared';
  throw refusal(`no plugin of network "${name}" declares capability "${stray}"; ${found}`);
}

function withOptions(source: string, list: Conflist, options: Readonly<Record<string, JsonObject>>): string {
  const object = parseObject(source, 'configuration');
  const single = isSinglePlugin(object);
  const entries = list.plugins.map(({ conf }) => conf);
  for (const [plugin, given] of Object.entries(options)) {
    if (!isObject(given)) throw refusal(`the options of "${plugin}" must be an object`);
    const index = indexOf(list, plugin);
    entries[index] = merge(entries[index] ?? {}, given);
  }
  return JSON.stringify(single ? entries[0] : { ...object, plugins: entries });
}

function indexOf({ name, plugins }: Conflist, plugin: string): number {
  const places = plugins.flatMap(({ type }, index) => (type === plugin ? [index] : []));
  const [place = plugins.findIndex((_, index) => String(index) === plugin)] = places;
  if (places.length > 1)
    throw refusal(
      `network "${name}" has several plugins "${plugin}"; name one by its index: ${places.join(', ')}`,
    );
  if (place >= 0) return place;
  throw refusal(
    `network "${name}" has no plugin "${plugin}"; it has ${quoteAll(plugins.map(({ type }) => type))}`,
  );
}

/** Plugins read their keys in any case, as the reference's do. */
function merge(before: JsonObject, given: JsonObject): JsonObject {
  const replaced = new Set(Object.keys(given).map(key => key.toLowerCase()));
  const kept = Object.entries(before).filter(([key]) => !replaced.has(key.toLowerCase()));
  return Object.fromEntries([...kept, ...Object.entries(given).filter(([, value]) => value !== null)]);
}

function quoteAll(names: readonly string[]): string {
  return [...new Set(names)].map(name => `"${name}"`).join(', ');
}

function refusal(problem: string): CniError {
  return new CniError(ErrorCode.invalidConfig, `Cannot change the attachment: ${problem}`);
}
