// Where does the configuration for an examination come from?
import { readFileSync } from 'node:fs';
import { loadFile } from '../chain/config/load.ts';
import { CniError, ErrorCode } from '../cni/errors.ts';
import { type JsonObject, parseObject } from '../cni/json.ts';
import { configurePlugins, offerCapabilities } from '../lab/capabilities.ts';

/** A configuration, and whether the plugin comes after another one. */
export interface Sample {
  readonly conf: JsonObject;
  readonly chained: boolean;
}

/** Reads a JSON object from a file. @throws CniError when it contains none */
export function readObject(file: string): JsonObject {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    const reason = (cause as { code?: string }).code ?? String(cause);
    throw new CniError(ErrorCode.ioFailure, `Cannot read "${file}": ${reason}`, { cause });
  }
  return parseObject(text, `"${file}"`);
}

/**
 * The first entry of that type in a conflist, with capability arguments as `catena try` offers them.
 * @throws CniError when the conflist has none
 */
export function findSample(file: string, type: string, capabilities: JsonObject): Sample {
  const list = loadFile(file);
  const at = list.plugins.findIndex(one => one.type === type);
  const entry = configurePlugins(list, offerCapabilities(list, capabilities))[at];
  if (entry === undefined) {
    const types = list.plugins.map(one => `"${one.type}"`).join(', ');
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot find "${type}" in "${file}": its plugins are ${types}`,
    );
  }
  const { conf, runtimeConfig } = entry;
  const given = Object.keys(runtimeConfig).length ? { runtimeConfig } : {};
  return { conf: { ...conf, name: list.name, ...given }, chained: at > 0 };
}
