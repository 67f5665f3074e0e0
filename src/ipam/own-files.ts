// How do our own files about the leases of a directory keep up with what others do there?
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { type Ip, parseIp } from '../net/ip.ts';
import { bootOf, noteBoot, noteReader } from './boot-note.ts';
import { isLease, listFiles, readLease } from './lease-files.ts';
import { type Owner, parseOwner } from './owner.ts';
import { OwnerIndex } from './owner-index.ts';
import { TakenMap } from './taken-map.ts';

/** What nobody but us keeps about the leases. */
export interface OwnFiles {
  readonly index: OwnerIndex;
  readonly taken: TakenMap;
}

/** The index of owners and the map of taken addresses; to be used under the directory's lock. */
export class OwnFilesKeeper {
  readonly #dir: string;
  readonly #reclaim: boolean;
  #index: OwnerIndex | undefined;
  #taken: TakenMap | undefined;
  #changed = false;
  #reclaimed = 0;

  /** @param reclaim take leases of an earlier boot away when they are met */
  constructor(dir: string, reclaim: boolean) {
    this.#dir = dir;
    this.#reclaim = reclaim;
    const index = OwnerIndex.find(dir);
    // Whoever made it may have been told to keep what we are to take away.
    if (index === undefined || (reclaim && !index.swept)) return;
    this.#index = index;
    if (index.isCurrent) this.#taken = TakenMap.find(dir);
  }

  /** How many leases of an earlier boot were taken away by now. */
  get reclaimed(): number {
    return this.#reclaimed;
  }

  /** Our own files about the leases, brought up to date when somebody else has changed the directory. */
  open(): OwnFiles {
    const [index, taken] = [this.#index, this.#taken];
    return index && taken ? { index, taken } : this.#bringUpToDate('new names');
  }

  /** Looks at every lease that nobody of ours has met in this boot, also at those under names that are known. */
  meetAll(): void {
    if (!this.open().index.complete) this.#bringUpToDate('all leases');
  }

  /** Notes that the directory is about to be changed by us. */
  noteChange(): void {
    this.#changed = true;
  }

  /** Keeps the files in step with what was done here; a change that they do not know of leaves them invalid. */
  save(): void {
    if (!this.#changed) return;
    try {
      this.#taken?.save();
      this.#index?.save();
    } catch {
      // A full disk, for example. What counts has been done, and the next call makes them anew.
    }
  }

  /** Reads what is new since our own files were saved, or all when there is nothing to go on from. */
  #bringUpToDate(scope: 'new names' | 'all leases'): OwnFiles {
    const known = this.#index?.isWorn === false ? this.#index : undefined;
    const before = known && (this.#taken ?? TakenMap.find(this.#dir));
    const taken = before ?? TakenMap.make(this.#dir);
    const names = listFiles(this.#dir);
    const news = new Set(taken.update(names));
    if (before && scope === 'all leases') {
      const isNoted = noteReader(this.#dir);
      // A lease that was renamed takes its note along.
      for (const name of names) if (isLease(name) && !isNoted(name)) news.add(name);
    }
    const { unnoted, owners, gone } = this.#meet(news);
    const index = (before && known) ?? OwnerIndex.make(this.#dir, owners, this.#reclaim);
    if (index === known) {
      known.add(owners);
      known.swept &&= this.#reclaim;
      known.complete = scope === 'all leases';
    }
    // From here on the index answers for them.
    for (const address of unnoted) noteBoot(join(this.#dir, address));
    for (const ip of gone) taken.clear(ip);
    this.#index = index;
    this.#taken = taken;
    this.#changed = true;
    // At once: what the call is about may fail, and the next one needs this as well.
    this.save();
    return { index, taken };
  }

  /** Looks at leases that nobody of ours has met in this boot, and takes away those that may not stay. */
  #meet(addresses: Iterable<string>): Met {
    const met: Met = { unnoted: [], owners: [], gone: [] };
    for (const address of addresses) {
      const [text, boot] = [readLease(this.#dir, address), bootOf(join(this.#dir, address))];
      if (this.#reclaim && (boot === 'earlier' || text?.trim() === '')) {
        rmSync(join(this.#dir, address), { force: true });
        met.gone.push(parseIp(address));
        this.#reclaimed++;
        continue;
      }
      if (boot === 'unknown') met.unnoted.push(address);
      const owner = text === undefined ? undefined : parseOwner(text);
      if (owner) met.owners.push([address, owner]);
    }
    return met;
  }
}

/** What became of leases that were met. */
interface Met {
  /** Those without a note. */
  readonly unnoted: string[];
  /** Who holds those that stayed, where they say so. */
  readonly owners: [address: string, owner: Owner][];
  readonly gone: Ip[];
}
