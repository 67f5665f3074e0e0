// Is a lease still in use, and how can anybody know?
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { closeNetns, findNetns } from '../sys/netns.ts';
import { type BootOfLease, bootOf } from './boot-note.ts';
import type { Holder } from './holders.ts';
import { readLease } from './lease-files.ts';
import { type Owner, parseOwner } from './owner.ts';

/**
 * `live`: something that exists uses it. `new`: written a moment ago, an ADD may be under way. `unused`: whoever had it
 * is gone. `unknown`: it cannot be told.
 */
export type LeaseState = 'live' | 'new' | 'unused' | 'unknown';

/** A lease and all that speaks for or against it. */
export interface InspectedLease {
  readonly address: string;
  readonly owner: Owner | undefined;
  readonly state: LeaseState;
  /** The evidence in words, in order of weight. */
  readonly evidence: readonly string[];
  readonly writtenAt: Date;
}

/** Where to look besides the lease itself. */
export interface Witnesses {
  /** The namespace that an ADD on record was for; undefined without a record. Leases of old may not name an interface. */
  findRecord(owner: Owner): { readonly netns: string } | undefined;
  /** Addresses in use on this machine; undefined when nobody may look. */
  readonly holders: ReadonlyMap<string, readonly Holder[]> | undefined;
}

/** An ADD takes a second at most between its lease and the address on the interface; a slow machine ten. */
const NEW_MS = 60_000;

/** Looks at one lease; undefined when there is none. No lock needed. */
export function inspectLease(dir: string, address: string, witnesses: Witnesses): InspectedLease | undefined {
  const path = join(dir, address);
  const text = readLease(dir, address);
  if (text === undefined) return undefined;
  const writtenAt = statSync(path).mtime;
  const owner = parseOwner(text);
  const boot = bootOf(path);
  const record = owner && witnesses.findRecord(owner);
  const namespaceExists = record !== undefined && exists(record.netns);
  const holders = witnesses.holders?.get(address) ?? [];
  const words = [
    ...describeHolders(holders, witnesses.holders !== undefined),
    record
      ? `an ADD is on record, for namespace "${record.netns}", which ${namespaceExists ? 'exists' : 'is gone'}`
      : 'no ADD is on record',
    BOOT_WORDS[boot],
    `"${path}" was written ${writtenAt.toISOString()}`,
  ];
  const isForeign = owner === undefined && text.trim() !== '';
  const isNew = Math.abs(Date.now() - writtenAt.getTime()) < NEW_MS;
  return { address, owner, state: judge(), evidence: words, writtenAt };

  function judge(): LeaseState {
    if (holders.length || namespaceExists) return 'live';
    if (boot === 'earlier') return 'unused';
    if (isForeign) return 'unknown';
    if (isNew) return 'new';
    return witnesses.holders === undefined ? 'unknown' : 'unused';
  }
}

const BOOT_WORDS: Readonly<Record<BootOfLease, string>> = {
  this: 'the lease has been there in this boot',
  earlier: 'the lease is from an earlier boot, and no container survives a restart',
  unknown: 'the lease carries no note of a boot of this machine',
};

function describeHolders(holders: readonly Holder[], looked: boolean): string[] {
  if (!looked) return ['whether an interface has the address cannot be seen: that takes root'];
  if (holders.length === 0) return ['no interface in any namespace of this machine has the address'];
  return holders.map(({ ifname, netns, process, processes }) => {
    const more = processes > 1 ? ` and ${processes - 1} more` : '';
    const who = process === undefined ? 'no process' : `process ${process}${more}`;
    return `interface "${ifname}" has the address, in namespace "${netns}" with ${who}`;
  });
}

function exists(path: string): boolean {
  const netns = findNetns(path);
  if (netns) closeNetns(netns);
  return netns !== undefined;
}
