// Which file tells other processes, and the next daemon, what this one keeps between nodes?
import { join } from 'node:path';
import { isObject, parseObject } from '../cni/json.ts';
import { putFile, removeFile } from '../files/put-file.ts';
import { readIfThere } from '../files/read-file.ts';
import { findCidr, findIp, renderCidr, renderIp } from '../net/ip.ts';
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
export function writeNote(runDir: string, { nodes, limits, ...choices }: BetweenNote): void {
  const within = limits?.within?.map(renderCidr);
  const said = { ...choices, within, never: limits?.never.map(renderIp) };
  const text = JSON.stringify({ ...said, nodes: nodes.map(describeNode) });
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
  const { own, ways, vni, port, nodes, within, never } = parseObject(text, `note "${file}"`);
  const described = listIn(nodes).filter(isObject) as DescribedNode[];
  return {
    own: String(own),
    ways: WAYS.find(one => one === ways) ?? 'auto',
    ...{ vni: Number(vni), port: Number(port) },
    limits: {
      within: Array.isArray(within) ? within.flatMap(text => findCidr(String(text)) ?? []) : undefined,
      never: listIn(never).flatMap(text => findIp(String(text)) ?? []),
    },
    nodes: described.map(nodeOf),
  };
}

function listIn(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
