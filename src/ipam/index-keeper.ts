// How is the index of owners kept consistent with what other programs change in a lease directory?
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { bootOf, noteBoot, noteReader } from './boot-note.ts';
import { isLease, listFiles, readLease } from './lease-files.ts';
import { type Owner, parseOwner } from './owner.ts';
import { OwnerIndex } from './owner-index.ts';

/** The index of one directory, read when it is first needed; to be used under the directory's lock. */
export class IndexKeeper {
  readonly #dir: string;
  readonly #reclaim: boolean;
  #index: OwnerIndex | undefined;
  /** The index covers the directory as it is. */
  #isCurrent = false;
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
    this.#isCurrent = index.isCurrent;
  }

  /** Number of leases of an earlier boot deleted so far. */
  get reclaimed(): number {
    return this.#reclaimed;
  }

  /** The index, brought up to date if another program has changed the directory. */
  open(): OwnerIndex {
    return this.#index && this.#isCurrent ? this.#index : this.#bringUpToDate('new names');
  }

  /** Reads every lease not yet noted in this boot, including those under known names. */
  meetAll(): void {
    if (!this.open().complete) this.#bringUpToDate('all leases');
  }

  /** Notes that we are about to change the directory. */
  noteChange(): void {
    this.#changed = true;
  }

  /** Updates the index to match our changes. If that fails it remains invalid. */
  save(): void {
    if (!this.#changed) return;
    try {
      this.#index?.save();
    } catch {
      // For example a full disk. The leases themselves have been changed, and the next call rebuilds the index.
    }
  }

  /** Reads the leases added since the index was saved, or all of them when it is missing or unusable. */
  #bringUpToDate(scope: 'new names' | 'all leases'): OwnerIndex {
    const known = this.#index?.isWorn === false ? this.#index : undefined;
    const listed = known?.listed() ?? new Set<string>();
    const names = listFiles(this.#dir);
    const present = new Set(names);
    const news = new Set(names.filter(name => !listed.has(name) && isLease(name)));
    if (known && scope === 'all leases') {
      const isNoted = noteReader(this.#dir);
      // A renamed lease keeps its note.
      for (const name of names) if (!isNoted(name) && isLease(name)) news.add(name);
    }
    const { unnoted, owners, gone } = this.#meet(news);
    const index = known ?? OwnerIndex.make(this.#dir, owners, this.#reclaim);
    if (index === known) {
      known.forget([...listed].filter(name => !present.has(name)).concat(gone));
      known.add(owners);
      known.swept &&= this.#reclaim;
      known.complete = scope === 'all leases';
    }
    // From now on the index lists their owners.
    for (const address of unnoted) noteBoot(join(this.#dir, address));
    this.#index = index;
    this.#isCurrent = true;
    this.#changed = true;
    // Save now: the call itself may still fail, and the next one needs this as well.
    this.save();
    return index;
  }

  /** Reads leases not yet noted in this boot, and deletes those that must not remain. */
  #meet(addresses: Iterable<string>): Met {
    const met: Met = { unnoted: [], owners: [], gone: [] };
    for (const address of addresses) {
      const [text, boot] = [readLease(this.#dir, address), bootOf(join(this.#dir, address))];
      if (this.#reclaim && (boot === 'earlier' || text?.trim() === '')) {
        rmSync(join(this.#dir, address), { force: true });
        met.gone.push(address);
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
  readonly gone: string[];
}
