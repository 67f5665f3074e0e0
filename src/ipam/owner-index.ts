// Which addresses may an attachment hold, without reading every lease of the network?
//
// The reference writes leases into the same directory and knows nothing of an index, so the index must notice. After
// each change of ours the directory's modification time is set to a moment of yesterday, and the index remembers which.
// Whoever adds or removes a file from then on moves that time to the present, and the index is out of date. It still lists
// an owner for every lease that carries the note of this boot: a line is on disk before its lease gets the note. So only
// leases without the note have to be read to bring it up to date. Asking each for its note takes most of the time, though.
// Reading only those of new names is enough to see what is free, and leaves out who replaced a lease by another of the
// same name. The index may list owners of leases that are gone, too: hits are to be verified.
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
import { putFile } from '../files/put-file.ts';
import { removeFile } from '../files/remove-file.ts';
import { thisBoot } from './boot-note.ts';
import type { Owner } from './owner.ts';

const INDEX = '.catena-owners';
const UNFINISHED_INDEX = '.catena-owners.new';
const DAY_MS = 86_400_000;
/** An index that grew by this much and doubled since it was made holds mostly what is gone. */
const SLACK_BYTES = 64 * 1024;
/** An index of up to this size is read whole, with its first line: nearly every call goes on to ask for candidates. */
const READ_AT_ONCE_BYTES = 128 * 1024;

/** First line of the file, always as long as this one. After a crash of the machine nothing in the file can be relied on. */
interface Header {
  readonly bootId: string;
  readonly stampMs: number;
  /** Leases of earlier boots were taken away when it was made. */
  readonly swept: boolean;
  /** No lease was replaced by another of the same name that it has not met. */
  readonly complete: boolean;
  /** Size of the file when it was made. */
  readonly madeBytes: number;
  /** Its size when this line was written: one that is smaller has lost owners. */
  readonly savedBytes: number;
}

/** The index of one directory; to be used under the directory's lock. */
export class OwnerIndex {
  readonly #dir: string;
  readonly #madeBytes: number;
  #stampMs: number;
  /** Nobody else has changed the directory since it was saved. */
  readonly isCurrent: boolean;
  /** Leases of earlier boots were taken away when it was made, and whenever it was brought up to date. */
  swept: boolean;
  /** It lists the owner of every lease, and not only of those whose names are new. */
  complete: boolean;
  /** Without room on the disk it is in here alone: whoever comes next makes another one. */
  readonly #isOnDisk: boolean;
  #text: Buffer | undefined;

  private constructor(
    dir: string,
    isCurrent: boolean,
    { stampMs, madeBytes, swept, complete }: Header,
    { text, isOnDisk }: { readonly text?: Buffer | undefined; readonly isOnDisk: boolean },
  ) {
    this.#dir = dir;
    this.isCurrent = isCurrent;
    this.#stampMs = stampMs;
    this.#madeBytes = madeBytes;
    this.swept = swept;
    this.complete = complete;
    this.#isOnDisk = isOnDisk;
    this.#text = text;
  }

  /** The index, if there is one of this boot. Ask before changing the directory oneself. */
  static find(dir: string): OwnerIndex | undefined {
    const { header, text } = read(dir) ?? {};
    if (header === undefined || header.bootId !== thisBoot().bootId) return undefined;
    const { mtimeNs } = statSync(dir, { bigint: true });
    const isCurrent = mtimeNs === BigInt(header.stampMs) * 1_000_000n;
    return new OwnerIndex(dir, isCurrent, header, { text, isOnDisk: true });
  }

  /** A new index of all leases; {@link save} makes it valid. */
  static make(
    dir: string,
    leases: Iterable<readonly [address: string, owner: Owner]>,
    swept: boolean,
  ): OwnerIndex {
    const lines = Array.from(leases, ([address, owner]) => renderLine(address, owner));
    const madeBytes = lines.reduce((sum, line) => sum + Buffer.byteLength(line), HEADER_BYTES);
    const sizes = { madeBytes, savedBytes: madeBytes };
    const header = { bootId: thisBoot().bootId, stampMs: 0, ...sizes, swept, complete: true };
    const text = [renderHeader(header), ...lines].join('');
    try {
      putFile(join(dir, INDEX), text, { unfinished: join(dir, UNFINISHED_INDEX) });
    } catch {
      // A full disk must not keep a lease from being given back. What lies there knows nothing of notes to come.
      removeFile(join(dir, INDEX));
      return new OwnerIndex(dir, true, header, { text: Buffer.from(text), isOnDisk: false });
    }
    return new OwnerIndex(dir, true, header, { isOnDisk: true });
  }

  /** Most of it is of leases that are gone: one made anew is smaller. */
  get isWorn(): boolean {
    return this.#isWorn(statSync(join(this.#dir, INDEX)).size);
  }

  /** Addresses that the attachment may hold; every one that it does hold is among them. */
  findCandidates(owner: Owner): string[] {
    this.#text ??= readFileSync(join(this.#dir, INDEX));
    const ending = renderLine('', owner);
    const found = new Set<string>();
    for (let at = this.#text.indexOf(ending); at >= 0; at = this.#text.indexOf(ending, at + 1)) {
      found.add(this.#text.toString('latin1', this.#text.lastIndexOf('\n', at) + 1, at));
    }
    return [...found];
  }

  /** Lists leases, on disk at once; do this before they get the note of this boot. */
  add(leases: readonly (readonly [address: string, owner: Owner])[]): void {
    if (leases.length === 0) return;
    // A line of its own first: whoever was killed here before may have left half of one.
    const lines = ['\n', ...leases.map(([address, owner]) => renderLine(address, owner))].join('');
    if (!this.#isOnDisk) {
      this.#text = Buffer.concat([this.#text ?? Buffer.alloc(0), Buffer.from(lines)]);
      return;
    }
    this.#text = undefined;
    try {
      appendFileSync(join(this.#dir, INDEX), lines);
    } catch (cause) {
      // Without an index nobody relies on notes; half a line would be worse.
      rmSync(join(this.#dir, INDEX), { force: true });
      throw cause;
    }
  }

  /** Declares that the index covers the directory as it is now. */
  save(): void {
    if (!this.#isOnDisk) return;
    const fd = openSync(join(this.#dir, INDEX), 'r+');
    try {
      // Without a stamp the next call finds the index out of date and makes a smaller one.
      const { size } = fstatSync(fd);
      if (this.#isWorn(size)) return;
      // Never the same twice: an earlier state is not to look like this one.
      this.#stampMs = Math.max(Date.now() - DAY_MS, this.#stampMs + 1);
      const stampMs = this.#stampMs;
      const sizes = { madeBytes: this.#madeBytes, savedBytes: size };
      const { swept, complete } = this;
      const header = { bootId: thisBoot().bootId, stampMs, ...sizes, swept, complete };
      writeSync(fd, renderHeader(header), 0);
      utimesSync(this.#dir, new Date(), new Date(stampMs));
    } finally {
      closeSync(fd);
    }
  }

  #isWorn(size: number): boolean {
    return size > 2 * this.#madeBytes + SLACK_BYTES;
  }
}

interface Opening {
  readonly header: Header;
  /** All of the file, the first line included, where that is not much. */
  readonly text: Buffer | undefined;
}

/** Undefined as well for a file that has been cut. */
function read(dir: string): Opening | undefined {
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
  const [, bootId, ...found] = /^catena-owners 5 (\S+) +(\d+) (\d+) (\d+) ([01]) ([01])\n$/.exec(line) ?? [];
  const [stampMs = 0, madeBytes = 0, savedBytes = 0, swept, complete] = found.map(Number);
  if (bootId === undefined || size < savedBytes) return undefined;
  return { bootId, stampMs, madeBytes, savedBytes, swept: swept === 1, complete: complete === 1 };
}

function renderHeader({ bootId, stampMs, madeBytes, savedBytes, swept, complete }: Header): string {
  const bytes = [madeBytes, savedBytes].map(size => String(size).padStart(12, '0'));
  const numbers = [String(stampMs).padStart(13, '0'), ...bytes, Number(swept), Number(complete)];
  return `catena-owners 5 ${bootId.padEnd(36)} ${numbers.join(' ')}\n`;
}

const HEADER_BYTES = renderHeader({
  ...{ bootId: '', stampMs: 0, madeBytes: 0, savedBytes: 0 },
  ...{ swept: false, complete: false },
}).length;

/** Neither identifiers nor interface names hold a tab or an end of line. */
function renderLine(address: string, { containerId, ifname = '' }: Owner): string {
  return `${address}\t${containerId}\t${ifname}\n`;
}
