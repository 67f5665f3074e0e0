// Where does a new project get our package from? It is not in any registry.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import manifest from '../../../package.json' with { type: 'json' };
import { PACKED_LIBRARY } from './packed-library.ts';

/** The dependency in package.json, and the file that it needs in the project. */
export interface LibrarySource {
  readonly dependency: string;
  readonly files: ReadonlyMap<string, Uint8Array>;
}

/** The compiled executable writes the package into the project; from sources, the source directory is installed. */
export function findLibrary(): LibrarySource {
  if (PACKED_LIBRARY === undefined) {
    return { dependency: `file:${resolve(import.meta.dir, '../../..')}`, files: new Map() };
  }
  const name = `vendor/${manifest.name}-${manifest.version}.tgz`;
  return { dependency: `file:${name}`, files: new Map([[name, readFileSync(PACKED_LIBRARY)]]) };
}
