// Which part of a range is this node's, where whereabouts' controller has divided it?
import { readFileSync } from 'node:fs';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { isObject } from '../../src/cni/json.ts';
import { hostName, nodeNameGiven } from '../../src/cni/node-name.ts';
import { type Books, findSlices } from './books.ts';
import { type Range, sliceNames, sliceOf } from './plan.ts';

/** Where whereabouts' installer writes the node's name. */
const NAME_FILES = [
  '/etc/kubernetes/cni/net.d/whereabouts.d/nodename',
  '/etc/cni/net.d/whereabouts.d/nodename',
];

/** The name under which the cluster knows this node. */
export function nodeNameIn(
  environment: Readonly<Record<string, string | undefined>>,
  kubeconfig?: string,
): string {
  const { NODENAME } = environment;
  const given = NODENAME?.trim() || nodeNameGiven(environment, kubeconfig);
  return given || NAME_FILES.map(firstLine).find(Boolean) || hostName();
}

/**
 * This node's slice of a range.
 * @throws CniError 11 when the controller has not assigned one yet, or the API cannot be reached
 */
export async function findSlice(books: Books, range: Range, node: string, network: string): Promise<Range> {
  const names = sliceNames(range, books.network, network);
  for (const name of names) {
    const found = (await findSlices(books, name))?.find(one => isObject(one) && one.nodeName === node);
    const slice = isObject(found) ? found.sliceRange : undefined;
    if (typeof slice === 'string' && slice !== '') return sliceOf(range, slice, node, books.network);
  }
  throw new CniError(
    ErrorCode.tryAgainLater,
    `Cannot allocate addresses: node "${node}" has no slice in ${names.map(name => `"${name}"`).join(' or ')}`,
    {
      details:
        'the controller of whereabouts assigns slices (kubectl get nodeslicepools); the plugin "cluster" needs no controller',
    },
  );
}

function firstLine(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return '';
  }
}
