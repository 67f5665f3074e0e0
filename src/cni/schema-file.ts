// What do the authors of a plugin and the tools that read its schema agree on?

/** The file beside the executable of a plugin: a JSON Schema of its entry in a list. */
export function schemaFileName(type: string): string {
  return `${type}.schema.json`;
}

/**
 * The annotation of such a schema with what a JSON Schema has no keyword for: `{"kind": "meta", "capabilities": ["mac"]}`. Its
 * `description` says what the plugin does.
 */
export const PLUGIN_KEYWORD = 'x-catena';
