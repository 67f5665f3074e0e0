// What do several checks look at, that is read only once?
import { listNetworks } from '../chain/load.ts';
import { listAttachments } from '../chain/result-cache.ts';
import { listRecords } from '../journal/store.ts';

/** Configurations and records of a node, each read when first asked for. */
export interface NodeFacts {
  networks(): ReturnType<typeof listNetworks>;
  results(): ReturnType<typeof listAttachments>;
  records(): ReturnType<typeof listRecords>;
}

/** The facts that lie in these directories. */
export function factsIn(places: {
  readonly confDir: string;
  readonly cacheDir: string;
  readonly stateDir: string;
}): NodeFacts {
  return {
    networks: once(() => listNetworks(places.confDir)),
    results: once(() => listAttachments(places.cacheDir)),
    records: once(() => listRecords(places.stateDir)),
  };
}

function once<T>(read: () => T): () => T {
  let known: { readonly value: T } | undefined;
  return () => {
    known ??= { value: read() };
    return known.value;
  };
}
