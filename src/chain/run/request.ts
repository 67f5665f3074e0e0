// What does one plugin receive on standard input?
import type { PluginEntry } from '../../cni/conflist.ts';
import { defined } from '../../cni/defined.ts';
import type { JsonObject } from '../../cni/json.ts';
import { type AttachmentKey, VALID_ATTACHMENTS } from '../../cni/plugin-config.ts';
import type { Conflist } from '../config/conflist.ts';

/** What the runtime adds to the entry of a list. */
export interface RequestParts {
  /** Result of the plugin before (ADD), or of the whole ADD (CHECK, DEL). */
  readonly prevResult?: JsonObject | undefined;
  /** What the caller offers, by capability; the plugin gets only what its entry declares. */
  readonly capabilityArgs?: JsonObject | undefined;
}

/** The misspelt key that libcni sent before the specification settled; it still sends both. */
const ATTACHMENTS_ALIAS = 'cni.dev/attachments';

/**
 * The request of a verb (SPEC "Deriving request configuration from plugin configuration"). All keys of the user
 * stay, except those that only a runtime may set: `prevResult`, and keys that begin with `cni.dev/`. `capabilities` is passed
 * to the plugin too, as in libcni: the specification would leave it out, but plugins that call others read it.
 */
export function buildRequest(list: Conflist, entry: PluginEntry, parts: RequestParts = {}): JsonObject {
  const conf = withoutRuntimeKeys(entry.conf);
  const runtimeConfig = pickRuntimeConfig(entry, parts.capabilityArgs ?? {});
  return {
    ...conf,
    name: list.name,
    cniVersion: list.version,
    ...defined({ prevResult: parts.prevResult, runtimeConfig }),
  };
}

/** The request of GC, with the attachments to keep under the specification's key and under libcni's older one. */
export function buildGcRequest(
  list: Conflist,
  entry: PluginEntry,
  valid: readonly AttachmentKey[],
): JsonObject {
  const keys = valid.map(({ containerID, ifname }) => ({ containerID, ifname }));
  return { ...buildRequest(list, entry), [VALID_ATTACHMENTS]: keys, [ATTACHMENTS_ALIAS]: keys };
}

/** True for a key that only a runtime may set; in a file it has no meaning. */
export function isRuntimeKey(key: string): boolean {
  return key === 'prevResult' || key.startsWith('cni.dev/');
}

function withoutRuntimeKeys(conf: JsonObject): JsonObject {
  const reserved = Object.keys(conf).filter(isRuntimeKey);
  if (!reserved.length) return conf;
  const rest = { ...conf };
  for (const key of reserved) delete rest[key];
  return rest;
}

/** Undefined if nothing is picked; then `runtimeConfig` of the file stays, as in the reference. */
function pickRuntimeConfig(entry: PluginEntry, offered: JsonObject): JsonObject | undefined {
  const picked = Object.entries(entry.capabilities)
    .filter(([name, wanted]) => wanted && Object.hasOwn(offered, name))
    .map(([name]) => [name, offered[name]] as const);
  return picked.length ? Object.fromEntries(picked) : undefined;
}
