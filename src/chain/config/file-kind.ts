// Does the extension of a file match its content?
import { basename, extname } from 'node:path';
import type { JsonObject } from '../../cni/json.ts';
import { isSinglePlugin } from './conflist.ts';

/** A file that libcni does not load because its extension does not match its content. */
export interface Mismatch {
  /** What is wrong; the text calls the file "it". */
  readonly problem: string;
  /** The key that shows what the file holds; absent if it is neither kind. */
  readonly key?: 'type' | 'plugins';
}

/**
 * libcni reads a list from a `.conflist` file only, and a single plugin configuration from a `.conf` or `.json` file only.
 * Undefined where content and extension agree, and for any other extension.
 */
export function findMismatch(file: string, content: JsonObject): Mismatch | undefined {
  const extension = extname(`x${basename(file)}`);
  if (!['.conflist', '.conf', '.json'].includes(extension)) return undefined;
  const single = isSinglePlugin(content);
  if (single !== (extension === '.conflist')) return undefined;
  if (single) return { problem: 'it is a single plugin configuration, not a list', key: 'type' };
  return content.plugins !== undefined
    ? { problem: 'it is a list, which belongs in a .conflist file', key: 'plugins' }
    : { problem: 'it has no "type"' };
}
