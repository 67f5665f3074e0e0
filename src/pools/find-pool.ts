// How is a pool defined, and is it still divided as it was when its first block was claimed?
import { CniError, ErrorCode } from '../cni/errors.ts';
import { renderCidr } from '../net/cidr.ts';
import { GROUP, type ObjectStore, type StoredObject } from './objects.ts';
import { type Pool, PoolSpec, parsePool } from './pool.ts';

/** Blocks of another size would overlap those that nodes hold. */
const SIZE_ANNOTATION = `${GROUP}/block-size`;
/** Several nodes may write the annotation at the same time. */
const ATTEMPTS = 5;

/**
 * The pool of that name, as the configuration defines it or else its object.
 * @param configured creates the object if there is none
 * @throws CniError 7 when there is no definition, it is invalid, or its blocks have had another size
 */
export async function findPool(
  store: ObjectStore,
  name: string,
  configured: PoolSpec | undefined,
): Promise<Pool> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const object = await store.find('pools', name);
    if (object === undefined && configured === undefined) {
      throw new CniError(
        ErrorCode.invalidConfig,
        `Cannot find pool "${name}": the store has no object of that name`,
        {
          details: 'create one of kind Pool, or give "subnets" in the configuration',
        },
      );
    }
    const pool = parsed(name, configured ?? object?.spec);
    if (await isSettled(store, object, pool)) return pool;
  }
  throw new CniError(ErrorCode.tryAgainLater, `Cannot use pool "${name}": its object keeps changing`);
}

/** @returns false if the object has been changed since */
async function isSettled(store: ObjectStore, object: StoredObject | undefined, pool: Pool): Promise<boolean> {
  const size = String(pool.blockSize);
  const { name } = pool;
  if (object === undefined) {
    const { subnets: own, layout, blockSize } = pool;
    const subnets = own.map(({ families }) => specOf(families));
    const spec = { subnets, layout, blockSize };
    const created = await store.create('pools', {
      name,
      labels: {},
      annotations: { [SIZE_ANNOTATION]: size },
      spec,
    });
    return created !== undefined;
  }
  const former = object.annotations[SIZE_ANNOTATION];
  if (former === size) return true;
  if (former !== undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      `Cannot use pool "${name}": its blocks had ${former} addresses before, and now "blockSize" is ${size}`,
      { details: 'the new blocks would overlap the old ones; make another pool for the new size' },
    );
  }
  const annotations = { ...object.annotations, [SIZE_ANNOTATION]: size };
  return (await store.replace('pools', { ...object, annotations })) !== undefined;
}

function specOf(families: Pool['subnets'][number]['families']): Record<string, string> {
  return Object.fromEntries(families.map(({ cidr }) => [`ipv${cidr.ip.family}`, renderCidr(cidr)]));
}

function parsed(name: string, spec: unknown): Pool {
  try {
    return parsePool(name, PoolSpec.parse(spec));
  } catch (cause) {
    if (cause instanceof CniError) throw cause;
    const problem = (cause as Error).message;
    throw new CniError(
      ErrorCode.invalidConfig,
      problem.startsWith('Cannot') ? problem : `Cannot use pool "${name}": ${problem}`,
      {
        cause,
      },
    );
  }
}
