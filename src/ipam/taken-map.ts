// Where is the next free address, without checking every taken one?
//
// A bitmap with one bit per address, in blocks of 256; blocks without a lease are omitted. Like the index of owners, this file
// is Catena's alone, and valid only as long as that index is.
import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { putFile, removeFile } from '../files/put-file.ts';
import { findIp, findIpv4Number, type Ip, parseIp } from '../net/ip.ts';
import { isLease } from './lease-files.ts';

const FILE = '.catena-taken';
const UNFINISHED_FILE = '.catena-taken.new';
/** Family and leading bits of the addresses, then the bits. */
const KEY_BYTES = 16;
const BITS_BYTES = 32;
const RECORD_BYTES = KEY_BYTES + BITS_BYTES;
/** If more blocks than this have changed, the whole file is written at once. */
const FEW_BLOCKS = 8;
/** As much as the kernel writes in one piece: a smaller file is not worth a second call. */
const PAGE_BYTES = 4096;

/** An IPv6 address without its last byte, and that byte: two digits, or one or two that form a group of their own. */
const LAST_BYTE = /^([\da-f:]+:[\da-f]{0,2}?)([\da-f]{1,2})$/;

/** The first record is a header with the file's length, so that a truncated file is not mistaken for one with fewer leases. */
function renderHeader(length: number): Buffer {
  return Buffer.from(
    `catena-taken 2 ${String(length).padStart(12, '0')}`.padEnd(RECORD_BYTES - 1).concat('\n'),
  );
}

/** The taken addresses of one directory; to be used under the directory's lock. */
export class TakenMap {
  readonly #dir: string;
  /** Offset of a block's bits, by its key. */
  readonly #places = new Map<string, number>();
  /** The same for IPv4, by block number: a whole /16 may have to be looked up. */
  readonly #placesOfIpv4 = new Map<number, number>();
  readonly #changed = new Set<number>();
  /** Keys of IPv6 blocks by the leading text of an address, which is slow to parse. */
  readonly #keysOfIpv6 = new Map<string, string | undefined>();
  /** False when the disk is full: the map exists only in memory. */
  #isOnDisk = true;
  #bytes: Buffer;
  #length: number;

  private constructor(dir: string, bytes: Buffer) {
    this.#dir = dir;
    this.#bytes = bytes;
    this.#length = bytes.length;
    for (let at = RECORD_BYTES; at < bytes.length; at += RECORD_BYTES) {
      this.#know(bytes.toString('latin1', at, at + KEY_BYTES), at + KEY_BYTES);
    }
  }

  /** The map on disk; undefined when it is missing or damaged. */
  static find(dir: string): TakenMap | undefined {
    try {
      const bytes = readFileSync(join(dir, FILE));
      const header = bytes.subarray(0, RECORD_BYTES);
      return header.equals(renderHeader(bytes.length)) ? new TakenMap(dir, bytes) : undefined;
    } catch {
      return undefined;
    }
  }

  /** A new empty map, written to disk at once if there is room. */
  static make(dir: string): TakenMap {
    const header = renderHeader(RECORD_BYTES);
    const map = new TakenMap(dir, header);
    try {
      putFile(join(dir, FILE), header, { unfinished: join(dir, UNFINISHED_FILE) });
    } catch {
      // A full disk must not prevent releasing a lease; this map exists only in memory.
      removeFile(join(dir, FILE));
      map.#isOnDisk = false;
    }
    return map;
  }

  /**
   * Sets the map to exactly the leases among these file names.
   * @returns the leases that it did not contain
   */
  update(names: readonly string[]): string[] {
    const before = Buffer.from(this.#bytes.subarray(0, this.#length));
    for (const place of this.#places.values()) {
      this.#bytes.fill(0, place, place + BITS_BYTES);
      this.#changed.add(place);
    }
    return names.filter(name => {
      const number = findIpv4Number(name);
      const place = number === undefined ? undefined : this.#placesOfIpv4.get(Math.floor(number / 256));
      if (number === undefined || place === undefined) {
        return isLease(name) && this.#setAndTell(parseIp(name), before);
      }
      this.#setBit(place, number % 256);
      return !isSet(before, place, number % 256);
    });
  }

  /** The first free address from `from` to `to`, inclusive. */
  findFree(from: Ip, to: Ip): Ip | undefined {
    const { family } = from;
    for (let value = from.value; value <= to.value; value = ((value >> 8n) + 1n) << 8n) {
      const place = this.#places.get(keyOf({ family, value }));
      if (place === undefined) return { family, value };
      const bit = this.#findClearBit(place, Number(value & 0xffn));
      if (bit === undefined) continue;
      const free = ((value >> 8n) << 8n) | BigInt(bit);
      return free <= to.value ? { family, value: free } : undefined;
    }
    return undefined;
  }

  /** Number of taken addresses from `from` to `to`, inclusive. */
  count(from: Ip, to: Ip): number {
    let count = 0;
    for (const [key, place] of this.#places) {
      const { family, value: first } = blockOf(key);
      if (family !== from.family || first > to.value || first + 255n < from.value) continue;
      const start = from.value > first ? Number(from.value - first) : 0;
      const end = to.value < first + 255n ? Number(to.value - first) : 255;
      for (let bit = start; bit <= end; bit++) if (this.#has(place, bit)) count++;
    }
    return count;
  }

  /** True when the address, in canonical text, is taken. */
  has(address: string): boolean {
    const number = findIpv4Number(address);
    if (number !== undefined) {
      const place = this.#placesOfIpv4.get(Math.floor(number / 256));
      return place !== undefined && this.#has(place, number % 256);
    }
    const [, head, last] = LAST_BYTE.exec(address) ?? [];
    if (head === undefined || last === undefined) {
      const ip = findIp(address);
      return ip !== undefined && this.#hasBit(keyOf(ip), Number(ip.value & 0xffn));
    }
    const key = this.#keyOfBlock(head, address);
    return key !== undefined && this.#hasBit(key, Number.parseInt(last, 16));
  }

  /** An attachment added and deleted a hundred times looks up as many addresses, nearly all in one block. */
  #keyOfBlock(head: string, address: string): string | undefined {
    if (!this.#keysOfIpv6.has(head)) {
      const ip = findIp(address);
      this.#keysOfIpv6.set(head, ip && keyOf(ip));
    }
    return this.#keysOfIpv6.get(head);
  }

  #hasBit(key: string, bit: number): boolean {
    const place = this.#places.get(key);
    return place !== undefined && this.#has(place, bit);
  }

  /** Marks the address as taken. */
  set(ip: Ip): void {
    const place = this.#placeFor(ip);
    this.#setBit(place, Number(ip.value & 0xffn));
    this.#changed.add(place);
  }

  /** Marks the address as free. */
  clear(ip: Ip): void {
    const place = this.#places.get(keyOf(ip));
    if (place === undefined) return;
    const bit = Number(ip.value & 0xffn);
    this.#bytes[place + (bit >> 3)] = (this.#bytes[place + (bit >> 3)] ?? 0) & ~(1 << (bit & 7));
    this.#changed.add(place);
  }

  /** Writes the changes. */
  save(): void {
    if (this.#changed.size === 0 || !this.#isOnDisk) return;
    renderHeader(this.#length).copy(this.#bytes);
    const fd = openSync(join(this.#dir, FILE), 'r+');
    try {
      for (const [from, to] of this.#stretches()) {
        const written = writeSync(fd, this.#bytes, from, to - from, from);
        if (written < to - from)
          throw new Error(`Cannot write "${FILE}": only ${written} of ${to - from} bytes were written`);
      }
      this.#changed.clear();
    } finally {
      closeSync(fd);
    }
  }

  /**
   * The byte ranges to write, in order. The header states the file's length and is written last, or in one write with all new
   * data, because a file of another length is invalid. Stale blocks after a crash do no harm: the index has no stamp yet.
   */
  #stretches(): [from: number, to: number][] {
    const places = [...this.#changed];
    const end = places.reduce((last, place) => Math.max(last, place), 0) + BITS_BYTES;
    if (places.length > FEW_BLOCKS || end <= PAGE_BYTES) return [[0, end]];
    return [...places.map(place => place - KEY_BYTES), 0].map(from => [from, from + RECORD_BYTES]);
  }

  #setAndTell(ip: Ip, before: Uint8Array): boolean {
    this.set(ip);
    return !isSet(before, this.#placeFor(ip), Number(ip.value & 0xffn));
  }

  #placeFor(ip: Ip): number {
    const key = keyOf(ip);
    return this.#places.get(key) ?? this.#append(key);
  }

  #setBit(place: number, bit: number): void {
    this.#bytes[place + (bit >> 3)] = (this.#bytes[place + (bit >> 3)] ?? 0) | (1 << (bit & 7));
  }

  #findClearBit(place: number, from: number): number | undefined {
    for (let bit = from; bit < 256; ) {
      // Whole bytes first: a block is mostly full or mostly empty.
      if ((bit & 7) === 0 && this.#bytes[place + (bit >> 3)] === 0xff) bit += 8;
      else if (this.#has(place, bit)) bit++;
      else return bit;
    }
    return undefined;
  }

  #has(place: number, bit: number): boolean {
    return isSet(this.#bytes, place, bit);
  }

  #append(key: string): number {
    const at = this.#length;
    this.#length += RECORD_BYTES;
    if (this.#length > this.#bytes.length) {
      const bigger = Buffer.alloc(Math.max(this.#bytes.length * 2, this.#length, 16 * RECORD_BYTES));
      this.#bytes.copy(bigger);
      this.#bytes = bigger;
    }
    this.#bytes.write(key, at, 'latin1');
    this.#know(key, at + KEY_BYTES);
    return at + KEY_BYTES;
  }

  #know(key: string, place: number): void {
    this.#places.set(key, place);
    const { family, value } = blockOf(key);
    if (family === 4) this.#placesOfIpv4.set(Number(value >> 8n), place);
  }
}

function isSet(bytes: Uint8Array, place: number, bit: number): boolean {
  return ((bytes[place + (bit >> 3)] ?? 0) & (1 << (bit & 7))) !== 0;
}

/** 16 bytes as text: the family, and the address without its last byte. */
function keyOf({ family, value }: Ip): string {
  const digits = (value >> 8n).toString(16).padStart(30, '0');
  return String.fromCharCode(family) + Buffer.from(digits, 'hex').toString('latin1');
}

function blockOf(key: string): Ip {
  const value = BigInt(`0x${Buffer.from(key.slice(1), 'latin1').toString('hex')}`) << 8n;
  return { family: key.charCodeAt(0) === 4 ? 4 : 6, value };
}
