// Which file tells other processes, and the next daemon, what this one keeps between nodes, and how do files describe nodes, on hosts without a cluster, too?

import { type FSWatcher, readdirSync, readFileSync, statSync, watch } from 'node:fs';
import { dirname, join } from 'node:path';
import * as z from 'zod/mini';
import { attempt, invalidConfig } from '../cni/errors.ts';
import { defined, describeIssue, isObject, parseJson, parseObject } from '../cni/json.ts';
import { putFile, removeFile } from '../files/put-file.ts';
import { readIfThere } from '../files/read-file.ts';
import {
  type Cidr,
  cidrContains,
  findCidr,
  findIp,
  type Ip,
  isIp,
  parseIp,
  renderCidr,
  renderIp,
} from '../net/ip.ts';
import { startTimer } from '../wait.ts';
import type { ClusterNode, NodeEvents, NodeSource } from './claims.ts';
import { noteFileOf } from './names.ts';
import { type PlanChoices, WAYS } from './plan.ts';

/** The nodes that were known last, and what was decided. */
export interface BetweenNote extends PlanChoices {
  readonly nodes: readonly ClusterNode[];
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

const Address = z.string().check(z.refine(isIp, 'must be an IP address'));
const Block = z
  .string()
  .check(z.refine(text => findCidr(text) !== undefined, 'must be an address with a prefix'));

const Described = z.strictObject({
  /** As the node itself is called. */
  name: z.string().check(z.minLength(1)),
  /** By which other nodes reach it; the first of each IP version is used. */
  addresses: z.array(Address),
  /** Ranges of its pods. */
  blocks: z.array(Block),
  /** When it came to the cluster, as `2026-11-26T13:00:00Z`: of two nodes with one address or block, the older one has it. */
  since: z.optional(z.string()),
});

export type DescribedNode = z.infer<typeof Described>;

const OneOrSeveral = z.union(
  [Described, z.array(Described)],
  'must be a node with "name", "addresses" and "blocks", or a list of such',
);

/**
 * Reads one node, or a list.
 * @throws CniError 7 that names the file
 */
export function parseNodes(text: string, file: string): ClusterNode[] {
  const refuse = (problem: string) => invalidConfig(`Cannot use nodes in "${file}": ${problem}`);
  const value = parseJson(text, refuse);
  const parsed = z.safeParse(Array.isArray(value) ? z.array(Described) : OneOrSeveral, value, {
    reportInput: true,
  });
  if (!parsed.success) throw refuse(parsed.error.issues.map(describeIssue).join('; '));
  return [parsed.data].flat().map(nodeOf);
}

/** The node; addresses and blocks that are none are left out. */
export function nodeOf({ name, addresses, blocks, since }: DescribedNode): ClusterNode {
  return {
    name,
    addresses: addresses.map(findIp).filter((ip): ip is Ip => ip !== undefined),
    blocks: blocks.map(findCidr).filter((cidr): cidr is Cidr => cidr !== undefined),
    ...defined({ since }),
  };
}

export function describeNode({ name, addresses, blocks, since }: ClusterNode): DescribedNode {
  return { name, addresses: addresses.map(renderIp), blocks: blocks.map(renderCidr), ...defined({ since }) };
}

/** Finds the other node whose block has an address; the smallest block counts. */
export type FindPeer = (address: string) => { readonly node: string; readonly block: Cidr } | undefined;

/** From the nodes that the daemon of the run directory was told last; none, if it keeps no routes, or this user may not read the note. */
export function peersIn(runDir: string): FindPeer {
  const { own, nodes = [] } = attempt(() => readNote(runDir)) ?? {};
  const peers = nodes.flatMap(({ name: node, blocks }) => blocks.map(block => ({ node, block })));
  return address => {
    const ip = parseIp(address);
    const those = peers.filter(({ block }) => cidrContains(block, ip));
    const [first] = those.sort((a, b) => b.block.prefix - a.block.prefix);
    return first?.node === own ? undefined : first;
  };
}

/** Several files are often written one after the other. */
const GATHER_MS = 50;
/** How often the files are read even if nothing was noticed: a directory that did not exist cannot be watched. */
const LOOK_EVERY_MS = 2_000;

/**
 * Reads a file, or every `*.json` of a directory, whenever something changes there. While one of them cannot be used, nothing is told
 * but the problem: a file that is being written must not remove its node.
 */
export function openFilesSource(path: string, events: NodeEvents): NodeSource {
  let told = '';
  let problem = '';
  let watcher: { readonly inode: number; readonly end: FSWatcher } | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = (): void => {
    follow();
    try {
      const texts = readTexts(path);
      const text = JSON.stringify(texts);
      if (text === told && problem === '') return;
      const nodes = texts.flatMap(([file, content]) => parseNodes(content, file));
      [told, problem] = [text, ''];
      events.nodes(nodes);
    } catch (error) {
      const { message } = error as Error;
      if (message !== problem) events.problem(message);
      problem = message;
    }
  };
  const lookIn = (ms: number): void => {
    timer ??= startTimer(() => {
      timer = undefined;
      look();
    }, ms);
  };
  // A directory that was replaced is another one, of which the former watcher says nothing.
  const follow = (): void => {
    const found = statSync(path, { throwIfNoEntry: false });
    const dir = found?.isDirectory() ? path : dirname(path);
    const inode = statSync(dir, { throwIfNoEntry: false })?.ino;
    if (inode === watcher?.inode) return;
    watcher?.end.close();
    watcher = undefined;
    if (inode === undefined) return;
    try {
      const end = watch(dir, { persistent: false }, () => lookIn(GATHER_MS));
      end.on('error', () => {});
      watcher = { inode, end };
    } catch {
      // Without inotify, as when its instances are used up, the files are read every LOOK_EVERY_MS.
    }
  };
  const looking = setInterval(look, LOOK_EVERY_MS);
  looking.unref();
  // Those who open it have to have the source before it tells them anything.
  lookIn(0);
  return {
    close() {
      clearInterval(looking);
      clearTimeout(timer);
      watcher?.end.close();
    },
  };
}

function readTexts(path: string): [file: string, content: string][] {
  if (!statSync(path).isDirectory()) return [[path, readFileSync(path, 'utf8')]];
  const names = readdirSync(path).filter(name => name.endsWith('.json') && !name.startsWith('.'));
  return names.sort().map(name => [join(path, name), readFileSync(join(path, name), 'utf8')]);
}
