// Which facts do several checks share, so that they are read only once?
import { listNetworks } from '../chain/config/load.ts';
import { type KnownList, listKnown } from '../chain/records/known-attachments.ts';

/** Configurations and records of a node, each read on first use. */
export interface NodeFacts {
  networks(): ReturnType<typeof listNetworks>;
  attachments(): KnownList;
}

/** The facts in these directories. */
export function factsIn(places: {
  readonly confDir: string;
  readonly cacheDir: string;
  readonly stateDir: string;
}): NodeFacts {
  return {
    networks: once(() => listNetworks(places.confDir)),
    attachments: once(() => listKnown({ cacheDir: places.cacheDir, journals: [places.stateDir] })),
  };
}

function once<T>(read: () => T): () => T {
  let known: { readonly value: T } | undefined;
  return () => {
    known ??= { value: read() };
    return known.value;
  };
}
