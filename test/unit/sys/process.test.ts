// Which pages does a process give back, and does it still run afterwards?

import { describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { releaseProgramCode, unchangedRanges } from '../../../src/sys/process.ts';

describe('unchangedRanges()', () => {
  test('finds code and constants', () => {
    const smaps = [
      mapping('200000-300000 r--p 00000000 fe:00 17 /opt/cni/bin/catena-core'),
      mapping('300000-500000 r-xp 00100000 fe:00 17 /opt/cni/bin/catena-core (deleted)'),
    ];
    expect(unchangedRanges(smaps.join(''))).toEqual([
      { start: 0x200000n, bytes: 0x100000n },
      { start: 0x300000n, bytes: 0x200000n },
    ]);
  });

  test.each([
    ['data', mapping('500000-600000 rw-p 00300000 fe:00 17 /opt/cni/bin/catena-core')],
    ['tables with addresses', mapping('500000-600000 r--p 00300000 fe:00 17 /opt/cni/bin/catena-core', 12)],
    ['the same in swap', mapping('500000-600000 r--p 00300000 fe:00 17 /opt/cni/bin/catena-core', 0, 12)],
    ['a mapping shared with others', mapping('500000-600000 r--s 00000000 fe:00 18 /run/notes')],
    ['memory without a file', mapping('500000-600000 r-xp 00000000 00:00 0 ')],
    ['the page of the kernel', mapping('7ff000-800000 r-xp 00000000 00:00 0 [vdso]')],
  ])('leaves out %s', (_, smaps) => expect(unchangedRanges(smaps)).toEqual([]));
});

describe('releaseProgramCode()', () => {
  test('unmaps most of the program, which continues', () => {
    const before = codeBytes();
    releaseProgramCode();
    expect(codeBytes()).toBeLessThan(before / 2);
    expect(JSON.parse('[1]').map(String).join()).toBe('1');
  });
});

function mapping(head: string, anonymous = 0, swap = 0): string {
  return `${head}\nRss: 64 kB\nAnonymous: ${String(anonymous).padStart(11)} kB\nSwap: ${swap} kB\nVmFlags: rd mr mw me\n`;
}

/** How much of the program's code is mapped. */
function codeBytes(): number {
  const mappings = readFileSync('/proc/self/smaps', 'utf8').split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/);
  const code = mappings.filter(one => one.includes(' r-xp ') && one.includes(process.execPath));
  return code.reduce((sum, one) => sum + Number(/^Rss: +(\d+)/m.exec(one)?.[1]), 0);
}
