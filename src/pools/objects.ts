// How are pools, blocks and addresses stored, whatever the store is?
//
// Creating an object is the lock: of all nodes that create one of the same name, one succeeds. Nothing else locks, so there is no
// leader, and a node that is gone holds up no other.
import type { JsonObject } from '../cni/json.ts';

/** API group and version of all kinds. */
export const GROUP = 'catena.cni.cncf.io';
export const API_VERSION = `${GROUP}/v1alpha1`;

/** Kinds of objects by the name of their collection. */
export const KINDS = { pools: 'Pool', blocks: 'Block', addresses: 'Address' } as const;
export type Kind = keyof typeof KINDS;
/** What nodes claim. */
export const BLOCK_KINDS = ['blocks', 'addresses'] as const satisfies readonly Kind[];

/** Labels of blocks and addresses. */
export const POOL_LABEL = `${GROUP}/pool`;
export const NODE_LABEL = `${GROUP}/node`;
/** Of addresses that outlast their attachment: for whom. */
export const KEPT_LABEL = `${GROUP}/kept`;

/** An IPAMClaim: one that was deleted and made again is another one. */
export interface ClaimKey {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** An object to be created. */
export interface NewObject {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly spec: JsonObject;
}

/** An object as it was when it was read. */
export interface StoredObject extends NewObject {
  /** Never used again: tells this object from a later one of the same name. */
  readonly uid: string;
  /** Changes with the object. */
  readonly version: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** A store of objects. Every call throws CniError 11 if the store cannot be reached: then the request may have been done or not. */
export interface ObjectStore {
  find(kind: Kind, name: string): Promise<StoredObject | undefined>;
  /** Those that have all the labels, as they are at the time of the call or later, in pages: any node can write any number. */
  pages(kind: Kind, labels: Readonly<Record<string, string>>): AsyncIterable<StoredObject[]>;
  /** @returns undefined if there is one of that name */
  create(kind: Kind, object: NewObject): Promise<StoredObject | undefined>;
  /** Replaces an object by a new version. @returns undefined if it has been changed since it was read, or is gone */
  replace(kind: Kind, object: StoredObject): Promise<StoredObject | undefined>;
  /**
   * Deletes this very object, if `version` is given in this very version.
   * @returns whether this call has deleted it; false if it is gone, is another one or was changed
   */
  remove(
    kind: Kind,
    object: Pick<StoredObject, 'name' | 'uid'> & { readonly version?: string },
  ): Promise<boolean>;
  /**
   * Whether the cluster has a node of that name; undefined in a store without nodes.
   * @param machine of `thisMachine`: a node that is known to be another machine does not count
   */
  hasNode(name: string, machine?: string): Promise<boolean | undefined>;
  /** The number of the last change to the store, which only grows unless the store is restored; undefined if it counts none. */
  revision(): Promise<number | undefined>;
  /** Whether this very IPAMClaim exists; undefined in a store without claims. */
  hasClaim(claim: ClaimKey): Promise<boolean | undefined>;
}

/** Those of all pages that are to be kept. */
export async function listAll(
  store: ObjectStore,
  kind: Kind,
  labels: Readonly<Record<string, string>>,
  isKept: (object: StoredObject) => boolean = () => true,
): Promise<StoredObject[]> {
  const found: StoredObject[] = [];
  for await (const page of store.pages(kind, labels))
    for (const object of page) if (isKept(object)) found.push(object);
  return found;
}
