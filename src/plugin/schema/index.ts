// What does the build of a plugin import, to write a schema beside its executable?
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type * as z from 'zod/mini';
import { type PluginKind, schemaFileName } from '../../cni/plugin-about.ts';
import { DIALECT, describePlugin } from './render.ts';

export type { PluginKind } from '../../cni/plugin-about.ts';

/** The part of a plugin's definition that a schema needs. */
export interface NamedConfig {
  readonly name: string;
  readonly config: z.core.$ZodType;
}

/** What a plugin says about itself to tools. */
export interface PluginWords {
  /** `main` creates the interface, `meta` works on what earlier plugins created, `ipam` is called by another plugin. */
  readonly kind: PluginKind;
  /** What it does, after "it": `limits the rate of traffic to and from the container`. */
  readonly summary: string;
  /** Keys of `runtimeConfig` that it reads; none unless given. */
  readonly capabilities?: readonly string[];
  /** Paths of the sources whose doc comments describe the options. */
  readonly sources: readonly string[];
}

/**
 * Writes `<name>.schema.json`, a JSON Schema of the plugin's entry in a list. Beside the executable, `catena validate`, `explain`,
 * `schema` and the page of `catena ui` read it.
 * @param dir is created if it is missing
 * @returns the path of the file
 * @throws Error of the file system
 */
export function writePluginSchema(plugin: NamedConfig, words: PluginWords, dir: string): string {
  const { name: type, config } = plugin;
  const { kind, summary, capabilities = [], sources } = words;
  const schema = describePlugin({ type, kind, summary, capabilities, config }, sources);
  const file = join(dir, schemaFileName(type));
  mkdirSync(dir, { recursive: true });
  writeFileSync(file, `${JSON.stringify({ $schema: DIALECT, ...schema }, null, 2)}\n`);
  return file;
}
