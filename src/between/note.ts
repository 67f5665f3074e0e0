// Which file tells other processes, and the next daemon, what this one keeps between nodes?
import { join } from 'node:path';
import { isObject, parseObject } from '../cni/json.ts';
import { putFile } from '../files/put-file.ts';
import { readIfThere } from '../files/read-file.ts';
import { removeFile } from '../files/remove-file.ts';
import { type DescribedNode, describeNode, nodeOf } from './described.ts';
import type { ClusterNode } from './node.ts';
import { type PlanChoices, WAYS } from './plan.ts';

/** The nodes that were known last, and what was decided. */
export interface BetweenNote extends PlanChoices {
  readonly nodes: readonly ClusterNode[];
}

/** In the run directory, which is empty after a boot, as is the kernel. */
export function noteFileOf(runDir: string): string {
  return join(runDir, 'between.json');
}

/** Written before anything is made, so that it can always be removed. */
export function writeNote(runDir: string, { nodes, ...choices }: BetweenNote): void {
  const text = JSON.stringify({ ...choices, nodes: nodes.map(describeNode) });
  putFile(noteFileOf(runDir), text, { what: 'note about nodes' });
}

/** Removed after everything else. */
export function removeNote(runDir: string): void {
  removeFile(noteFileOf(runDir), 'note about nodes');
}

/**
 * Undefined if nothing is kept.
 * @throws CniError if it cannot be read
 */
export function readNote(runDir: string): BetweenNote | undefined {
  const file = noteFileOf(runDir);
  const text = readIfThere(file, 'note about nodes');
  if (text === undefined) return undefined;
  const { own, ways, vni, port, nodes } = parseObject(text, `note "${file}"`);
  const described = (Array.isArray(nodes) ? nodes : []).filter(isObject) as DescribedNode[];
  return {
    own: String(own),
    ways: WAYS.find(one => one === ways) ?? 'auto',
    ...{ vni: Number(vni), port: Number(port) },
    nodes: described.map(nodeOf),
  };
}
