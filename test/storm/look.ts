// What do kernel and files of a node hold, by the words of ip, tc and nft?

import fs from 'node:fs';
import { Asker } from './actors/asker.ts';
import type { Namespaces } from './actors/namespaces.ts';
import { LETTERS, NETS } from './networks.ts';
import { tool } from './node.ts';

/** A device as `ip -j -d addr` shows it. */
export interface Device {
  readonly ifindex: number;
  readonly ifname: string;
  readonly address?: string;
  readonly master?: string;
  readonly ifalias?: string;
  readonly linkinfo?: { readonly info_kind?: string };
  readonly addr_info?: readonly { readonly local: string; readonly prefixlen: number }[];
}

/** A queue as `tc -j qdisc` shows it. */
export interface Queue {
  readonly kind: string;
  readonly dev: string;
  readonly options?: { readonly rate?: number };
}

/** A lease of host-local. */
export interface Lease {
  readonly net: string;
  readonly address: string;
  readonly owner: string;
}

/** Everything that is looked at after a round. */
export interface Look {
  readonly host: readonly Device[];
  readonly queues: readonly Queue[];
  /** `nft -j list ruleset` as it came. */
  readonly rules: string;
  /** Devices in the namespaces that are there. */
  readonly inside: ReadonlyMap<number, readonly Device[]>;
  /** Addresses for which they have rules of routing. */
  readonly sources: ReadonlyMap<number, readonly string[]>;
  readonly leases: readonly Lease[];
  /** Files of records, caches, backups. */
  readonly files: readonly string[];
}

const LOCKS = '/run/catena/locks/';
const STATE = ['/var/lib/cni', '/var/lib/catena', '/run/catena', '/run/cni'];
const LEASES = '/var/lib/cni/networks';
const IS_ADDRESS = /^(\d+\.\d+\.\d+\.\d+|[\da-f]*:[\da-f:]+)$/;
/** The last requests, of which the daemon keeps a fixed number, and the history. */
const TRACES = /^\/run\/catena\/traces\/|^\/var\/lib\/catena\/(history|((pods|delegates)\/)?caches)\//;

/** Looks at one node again and again. */
export class Looker {
  readonly #namespaces: Namespaces;
  readonly #ip = new Asker('ip', '-j', '-d');
  readonly #tc = new Asker('tc', '-j');

  constructor(namespaces: Namespaces) {
    this.#namespaces = namespaces;
  }

  get pids(): number[] {
    return [...this.#ip.pids, ...this.#tc.pids];
  }

  /** Looks at all of it. @param slots the namespaces that are there */
  async look(slots: readonly number[]): Promise<Look> {
    const [host, queues, rules, inside] = await Promise.all([
      this.#ip.ask<Device>('addr show'),
      this.#tc.ask<Queue>('qdisc show'),
      tool(['nft', '-j', 'list', 'ruleset']),
      Promise.all(slots.map(slot => this.#namespaces.devicesOf(slot))),
    ]);
    const sources = await Promise.all(slots.map(slot => this.#namespaces.sourcesOf(slot)));
    return {
      host,
      queues,
      rules,
      inside: new Map(slots.map((slot, i) => [slot, inside[i] ?? []])),
      sources: new Map(slots.map((slot, i) => [slot, sources[i] ?? []])),
      leases: LETTERS.flatMap(letter => leasesOf(NETS[letter].name)),
      files: STATE.flatMap(filesBelow).filter(file => {
        return !TRACES.test(file) && !file.startsWith(`${LEASES}/`) && !isDeadLock(file);
      }),
    };
  }
}

/** The lock of a process that was killed: nothing waits for it, and the next operation on the attachment takes it. */
function isDeadLock(file: string): boolean {
  if (!file.startsWith(LOCKS)) return false;
  const [pid] = file.slice(file.lastIndexOf('/') + 1).split('-');
  return !fs.existsSync(`/proc/${pid}`);
}

function leasesOf(net: string): Lease[] {
  return names(`${LEASES}/${net}`)
    .filter(name => IS_ADDRESS.test(name))
    .flatMap(address => {
      try {
        const owner = fs.readFileSync(`${LEASES}/${net}/${address}`, 'utf8').trim();
        return [{ net, address, owner: owner.replace(/\r?\n/, '/') }];
      } catch {
        return [];
      }
    });
}

function names(dir: string): string[] {
  return fs.existsSync(dir) ? fs.readdirSync(dir) : [];
}

function filesBelow(dir: string): string[] {
  if (!fs.existsSync(dir)) return [];
  const entries = fs.readdirSync(dir, { withFileTypes: true, recursive: true });
  return entries.filter(entry => !entry.isDirectory()).map(entry => `${entry.parentPath}/${entry.name}`);
}
