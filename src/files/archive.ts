// How are files packed into an archive that is identical whenever and wherever it is made?
import { gzipSync } from 'node:zlib';

/** A file for the archive. */
export interface ArchiveEntry {
  /** Path inside the archive, at most 100 bytes. */
  readonly name: string;
  readonly mode: number;
  /** The content, or the name of an earlier entry to which this one is a hard link. */
  readonly content: Uint8Array | { readonly sameAs: string };
}

const BLOCK = 512;

/**
 * A compressed tape archive (POSIX ustar), in the order of the entries; owned by root, with the same time for all.
 * @param time in seconds since 1970
 */
export function packArchive(entries: readonly ArchiveEntry[], time: number): Uint8Array {
  const blocks = entries.flatMap(entry => {
    const data = entry.content instanceof Uint8Array ? entry.content : new Uint8Array();
    return [headerOf(entry, data.length, time), data, new Uint8Array(-data.length & (BLOCK - 1))];
  });
  // Two empty blocks mark the end; writers pad the archive to a multiple of ten kilobytes.
  const size = blocks.reduce((sum, block) => sum + block.length, 0) + 2 * BLOCK;
  const end = new Uint8Array(2 * BLOCK + (-size & (20 * BLOCK - 1)));
  // zlib writes neither name nor time, but its byte for the operating system depends on the library, so it is set here.
  const packed = gzipSync(Buffer.concat([...blocks, end]), { level: 6 });
  packed[9] = 3;
  return packed;
}

function headerOf({ name, mode, content }: ArchiveEntry, size: number, time: number): Uint8Array {
  const header = Buffer.alloc(BLOCK);
  const put = (text: string, at: number, length: number) => {
    if (Buffer.byteLength(text) > length) throw new Error(`Cannot pack "${name}": "${text}" is too long`);
    header.write(text, at, length);
  };
  const octal = (value: number, length: number) => `${value.toString(8).padStart(length - 1, '0')}\0`;
  put(name, 0, 100);
  put(octal(mode, 8), 100, 8);
  put(octal(0, 8), 108, 8);
  put(octal(0, 8), 116, 8);
  put(octal(size, 12), 124, 12);
  put(octal(time, 12), 136, 12);
  put(' '.repeat(8), 148, 8);
  put(content instanceof Uint8Array ? '0' : '1', 156, 1);
  if (!(content instanceof Uint8Array)) put(content.sameAs, 157, 100);
  put('ustar\0', 257, 6);
  put('00', 263, 2);
  put('root', 265, 32);
  put('root', 297, 32);
  const sum = header.reduce((total, byte) => total + byte, 0);
  put(`${octal(sum, 7)} `, 148, 8);
  return header;
}
