// How are our own index files of a lease directory kept consistent with changes by other programs?
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { type Ip, parseIp } from '../net/ip.ts';
import { bootOf, noteBoot, noteReader } from './boot-note.ts';
import { isLease, listFiles, readLease } from './lease-files.ts';
import { type Owner, parseOwner } from './owner.ts';
import { OwnerIndex } from './owner-index.ts';
import { TakenMap } from './taken-map.ts';

/** Files about the leases that only Catena keeps. */
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

  /** @param reclaim delete leases of an earlier boot when they are found */
  constructor(dir: string, reclaim: boolean) {
    this.#dir = dir;
    this.#reclaim = reclaim;
    const index = OwnerIndex.find(dir);
    // The process that made it may have been told to keep what we have to delete.
    if (index === undefined || (reclaim && !index.swept)) return;
    this.#index = index;
    if (index.isCurrent) this.#taken = TakenMap.find(dir);
  }

  /** Number of leases of an earlier boot deleted so far. */
  get reclaimed(): number {
    return this.#reclaimed;
  }

  /** Our own files, brought up to date if another program has changed the directory. */
  open(): OwnFiles {
    const [index, taken] = [this.#index, this.#taken];
    return index && taken ? { index, taken } : this.#bringUpToDate('new names');
  }

  /** Reads every lease not yet noted in this boot, including those under known names. */
  meetAll(): void {
    if (!this.open().index.complete) this.#bringUpToDate('all leases');
  }

  /** Notes that we are about to change the directory. */
  noteChange(): void {
    this.#changed = true;
  }

  /** Updates the files to match our changes. If that fails they remain invalid. */
  save(): void {
    if (!this.#changed) return;
    try {
      this.#taken?.save();
      this.#index?.save();
    } catch {
      // For example a full disk. The leases themselves have been changed, and the next call rebuilds these files.
    }
  }

  /** Reads the leases added since our files were saved, or all of them when our files are missing or unusable. */
  #bringUpToDate(scope: 'new names' | 'all leases'): OwnFiles {
    const known = this.#index?.isWorn === false ? this.#index : undefined;
    const before = known && (this.#taken ?? TakenMap.find(this.#dir));
    const taken = before ?? TakenMap.make(this.#dir);
    const names = listFiles(this.#dir);
    const news = new Set(taken.update(names));
    if (before && scope === 'all leases') {
      const isNoted = noteReader(this.#dir);
      // A renamed lease keeps its note.
      for (const name of names) if (isLease(name) && !isNoted(name)) news.add(name);
    }
    const { unnoted, owners, gone } = this.#meet(news);
    const index = (before && known) ?? OwnerIndex.make(this.#dir, owners, this.#reclaim);
    if (index === known) {
      known.add(owners);
      known.swept &&= this.#reclaim;
      known.complete = scope === 'all leases';
    }
    // From now on the index lists their owners.
    for (const address of unnoted) noteBoot(join(this.#dir, address));
    for (const ip of gone) taken.clear(ip);
    this.#index = index;
    this.#taken = taken;
    this.#changed = true;
    // Save now: the call itself may still fail, and the next one needs this as well.
    this.save();
    return { index, taken };
  }

  /** Reads leases not yet noted in this boot, and deletes those that must not remain. */
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

/** The results of reading leases. */
interface Met {
  /** Leases without a note. */
  readonly unnoted: string[];
  /** Owners of the remaining leases, where stated. */
  readonly owners: [address: string, owner: Owner][];
  readonly gone: Ip[];
}
