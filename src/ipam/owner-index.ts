// Which addresses may belong to an attachment, without reading every lease of the network?
//
// The reference writes leases to the same directory and knows nothing of an index, so the index must detect its changes. After
// each change of ours we set the directory's modification time to a moment of the previous day, and store that in the index.
// When another program adds or removes a file, the time moves to the present and the index is out of date. It still lists an
// owner for every lease with the note of this boot, because a line is on disk before its lease gets the note. So only leases
// without the note have to be read to bring it up to date. But checking every lease for its note takes most of the time.
// Reading only the leases with new names is cheap, but misses a lease that was replaced by another of the same name. The index may
// also list owners of deleted leases: verify its hits.

import {
  appendFileSync,
  closeSync,
  fstatSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { putFile, removeFile } from '../files/put-file.ts';
import { type Owner, thisBoot } from './lease-files.ts';

const INDEX = '.catena-owners';
const UNFINISHED_INDEX = '.catena-owners.new';
const DAY_MS = 86_400_000;
/** An index that has doubled since it was made, and has grown by at least this much, lists mostly deleted leases. */
const SLACK_BYTES = 64 * 1024;
/** An index up to this size is read whole with its header, since nearly every call goes on to ask for candidates. */
const READ_AT_ONCE_BYTES = 128 * 1024;
/** So many leases may be read, and found missing, before it pays to see which of them were released. */
const FEW_CANDIDATES = 4;

/** The file's first line, of constant length. After a crash of the machine nothing in the file can be relied on. */
interface Header {
  readonly bootId: string;
  readonly stampMs: number;
  /** Leases of earlier boots were deleted when it was made. */
  readonly swept: boolean;
  /** It has read every lease, including those that replaced another of the same name. */
  readonly complete: boolean;
  /** Size of the file when it was made. */
  readonly madeBytes: number;
  /** Size of the file when this line was written: a smaller file has lost owners. */
  readonly savedBytes: number;
}

/** The index of one directory; to be used under the directory's lock. */
export class OwnerIndex {
  readonly #dir: string;
  readonly #file: string;
  #header: Header;
  /** No other program has changed the directory since the index was saved. */
  readonly isCurrent: boolean;
  /** False when the disk is full: the index exists only in memory, and the next call makes another one. */
  readonly #isOnDisk: boolean;
  #text: Buffer | undefined;

  private constructor(dir: string, isCurrent: boolean, header: Header, text?: Buffer, isOnDisk = true) {
    [this.#dir, this.#file] = [dir, join(dir, INDEX)];
    this.isCurrent = isCurrent;
    this.#header = header;
    this.#isOnDisk = isOnDisk;
    this.#text = text;
  }

  get swept(): boolean {
    return this.#header.swept;
  }

  get complete(): boolean {
    return this.#header.complete;
  }

  mark(covered: Pick<Header, 'swept' | 'complete'>): void {
    this.#header = { ...this.#header, ...covered };
  }

  /** The index, if one of this boot exists. Call it before changing the directory. */
  static find(dir: string): OwnerIndex | undefined {
    const { header, text } = read(dir) ?? {};
    if (header === undefined || header.bootId !== thisBoot().bootId) return undefined;
    const { mtimeNs } = statSync(dir, { bigint: true });
    return new OwnerIndex(dir, mtimeNs === BigInt(header.stampMs) * 1_000_000n, header, text);
  }

  /**
   * Makes a new index of all leases; {@link save} makes it valid.
   * @param isKept false for one that is for this call only, and stays in memory
   */
  static make(
    dir: string,
    leases: Iterable<readonly [address: string, owner: Owner]>,
    swept: boolean,
    isKept = true,
  ): OwnerIndex {
    const lines = Array.from(leases, ([address, owner]) => renderLine(address, owner));
    const madeBytes = lines.reduce((sum, line) => sum + Buffer.byteLength(line), HEADER_BYTES);
    const { bootId } = thisBoot();
    const header = { bootId, stampMs: 0, madeBytes, savedBytes: madeBytes, swept, complete: true };
    const text = [renderHeader(header), ...lines].join('');
    const inMemory = () => new OwnerIndex(dir, true, header, Buffer.from(text), false);
    if (!isKept) return inMemory();
    try {
      putFile(join(dir, INDEX), text, { unfinished: join(dir, UNFINISHED_INDEX) });
    } catch {
      // A full disk must not prevent releasing a lease. The old file would not know of notes still to come.
      removeFile(join(dir, INDEX));
      return inMemory();
    }
    return new OwnerIndex(dir, true, header);
  }

  /** True when it lists mostly deleted leases, so that a new one would be smaller. */
  get isWorn(): boolean {
    return this.#isWorn(statSync(this.#file).size);
  }

  /** Addresses that it lists and that were not released since. */
  listed(): Set<string> {
    const listed = new Set<string>();
    const text = this.#whole().toString('latin1');
    for (let at = HEADER_BYTES, end = 0; at < text.length; at = end + 1) {
      end = text.indexOf('\n', at);
      if (end < 0) break;
      const tab = text.indexOf('\t', at);
      const second = text.indexOf('\t', tab + 1);
      // A killed process leaves half a line.
      if (tab < 0 || second < 0 || second > end) continue;
      if (second === tab + 1) listed.delete(text.slice(at, tab));
      else listed.add(text.slice(at, tab));
    }
    return listed;
  }

  /**
   * Addresses that interfaces of the container may hold. Only the leases themselves tell their owners: a program may have
   * overwritten one in place, with another interface or none, which the directory's time does not show.
   */
  findCandidates(containerId: string): string[] {
    const text = this.#whole();
    const middle = `\t${containerId}\t`;
    const found = new Set<string>();
    for (let at = text.indexOf(middle); at >= 0; at = text.indexOf(middle, at + 1)) {
      found.add(text.toString('latin1', text.lastIndexOf('\n', at) + 1, at));
    }
    if (found.size <= FEW_CANDIDATES) return [...found];
    const listed = this.listed();
    return [...found].filter(address => listed.has(address));
  }

  #whole(): Buffer {
    this.#text ??= readFileSync(this.#file);
    return this.#text;
  }

  /**
   * Lists leases, written to disk at once; call it before they get the note of this boot.
   * @throws Error when they cannot be written; there is no index then
   */
  add(leases: readonly (readonly [address: string, owner: Owner])[]): void {
    this.#append(leases.map(([address, owner]) => renderLine(address, owner)));
  }

  /**
   * Lists addresses as free; call it after their leases were deleted. A lease that another program writes under such a name is
   * new.
   */
  forget(addresses: readonly string[]): void {
    try {
      this.#append(addresses.map(address => renderLine(address, { containerId: '' })));
    } catch {
      // A full disk must not prevent releasing a lease; the next call makes another index.
    }
  }

  #append(lines: readonly string[]): void {
    if (lines.length === 0) return;
    // Start with a newline: a process killed during an earlier write may have left half a line.
    const text = ['\n', ...lines].join('');
    if (!this.#isOnDisk) {
      this.#text = Buffer.concat([this.#text ?? Buffer.alloc(0), Buffer.from(text)]);
      return;
    }
    this.#text = undefined;
    try {
      appendFileSync(this.#file, text);
    } catch (cause) {
      // Without an index the notes are not used; half a line would be worse.
      rmSync(this.#file, { force: true });
      throw cause;
    }
  }

  /** Declares that the index covers the directory as it is now. */
  save(): void {
    if (!this.#isOnDisk) return;
    const fd = openSync(this.#file, 'r+');
    try {
      // Without a stamp the next call finds the index out of date and makes a smaller one.
      const { size } = fstatSync(fd);
      if (this.#isWorn(size)) return;
      // Never use the same stamp twice: an earlier state must not look like this one.
      const stampMs = Math.max(Date.now() - DAY_MS, this.#header.stampMs + 1);
      this.#header = { ...this.#header, bootId: thisBoot().bootId, stampMs, savedBytes: size };
      writeSync(fd, renderHeader(this.#header), 0);
      utimesSync(this.#dir, new Date(), new Date(stampMs));
    } finally {
      closeSync(fd);
    }
  }

  #isWorn(size: number): boolean {
    return size > 2 * this.#header.madeBytes + SLACK_BYTES;
  }
}

/** The header, and the whole file including it if that is small. Also undefined for a truncated file. */
function read(dir: string): { readonly header: Header; readonly text: Buffer | undefined } | undefined {
  try {
    const fd = openSync(join(dir, INDEX), 'r');
    try {
      const { size } = fstatSync(fd);
      const isShort = size <= READ_AT_ONCE_BYTES;
      const bytes = Buffer.allocUnsafe(isShort ? size : HEADER_BYTES);
      if (readSync(fd, bytes, 0, bytes.length, 0) < bytes.length) return undefined;
      const header = parseHeader(bytes.toString('latin1', 0, HEADER_BYTES), size);
      return header && { header, text: isShort ? bytes : undefined };
    } finally {
      closeSync(fd);
    }
  } catch {
    return undefined;
  }
}

function parseHeader(line: string, size: number): Header | undefined {
  const [, bootId, ...found] = /^catena-owners 6 (\S+) +(\d+) (\d+) (\d+) ([01]) ([01])\n$/.exec(line) ?? [];
  const [stampMs = 0, madeBytes = 0, savedBytes = 0, swept, complete] = found.map(Number);
  if (bootId === undefined || size < savedBytes) return undefined;
  return { bootId, stampMs, madeBytes, savedBytes, swept: swept === 1, complete: complete === 1 };
}

function renderHeader({ bootId, stampMs, madeBytes, savedBytes, swept, complete }: Header): string {
  const bytes = [madeBytes, savedBytes].map(size => String(size).padStart(12, '0'));
  const numbers = [String(stampMs).padStart(13, '0'), ...bytes, Number(swept), Number(complete)];
  return `catena-owners 6 ${bootId.padEnd(36)} ${numbers.join(' ')}\n`;
}

const EMPTY: Header = { bootId: '', stampMs: 0, madeBytes: 0, savedBytes: 0, swept: false, complete: false };
const HEADER_BYTES = renderHeader(EMPTY).length;

/** Neither container ids nor interface names contain a tab or a newline. Without a container the address was released. */
function renderLine(address: string, { containerId, ifname = '' }: Owner): string {
  return `${address}\t${containerId}\t${ifname}\n`;
}
