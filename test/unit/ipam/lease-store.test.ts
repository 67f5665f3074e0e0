import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  bootOf,
  isShareable,
  listLeases,
  noteBoot,
  parseOwner,
  thisBoot,
} from '../../../src/ipam/lease-files.ts';
import {
  findGarbage,
  type LeaseStore,
  type NewLease,
  unusedGarbage,
  withStore,
} from '../../../src/ipam/lease-store.ts';
import { OwnerIndex } from '../../../src/ipam/owner-index.ts';
import type { Log } from '../../../src/log.ts';
import { offsetIp, parseIp, renderIp } from '../../../src/net/ip.ts';
import { keptWith } from '../../helpers/kept.ts';

const OWNER = { containerId: 'cid', ifname: 'eth0' };
let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'leases-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

function give(text: string, setIndex = 0): NewLease {
  return { ip: parseIp(text), setIndex };
}

function put(name: string, text: string): void {
  writeFileSync(join(dir, name), text);
}

function locked<T>(work: (store: LeaseStore) => T, reclaim = true): T {
  return withStore(dir, { reclaim }, work);
}

/** Next free address of 10.0.0.0/24. */
function free(reclaim = true): string | undefined {
  const ip = locked(store => store.findFree(parseIp('10.0.0.2'), parseIp('10.0.0.254')), reclaim);
  return ip && renderIp(ip);
}

/** As if the lease had been there before the machine was started, on this one or on another. */
function age(name: string, machine = thisBoot().machine): void {
  if (!noteBoot(join(dir, name), { bootId: '00000000-0000-4000-8000-000000000000', machine })) {
    throw new Error(`"${tmpdir()}" holds no extended attributes`);
  }
}

function contents(): Record<string, string> {
  return Object.fromEntries(
    readdirSync(dir)
      .filter(name => !name.startsWith('.'))
      .map(name => [name, readFileSync(join(dir, name), 'utf8')]),
  );
}

describe('LeaseStore.reserve()', () => {
  test('writes leases, pointers and lock as the reference does', () => {
    locked(store => store.reserve([give('10.0.0.2'), give('fd00::2', 1)], OWNER));
    expect(contents()).toEqual({
      '10.0.0.2': 'cid\r\neth0',
      'fd00::2': 'cid\r\neth0',
      'last_reserved_ip.0': '10.0.0.2',
      'last_reserved_ip.1': 'fd00::2',
      lock: '',
    });
    expect(statSync(join(dir, '10.0.0.2')).mode & 0o777).toBe(0o600);
    expect(statSync(join(dir, 'last_reserved_ip.0')).mode & 0o777).toBe(0o600);
    expect(statSync(join(dir, 'lock')).mode & 0o777).toBe(0o750 & ~process.umask());
  });

  test('fails for good where its lock cannot be taken', () => {
    symlinkSync('elsewhere', join(dir, 'lock'));
    const message = expect.stringContaining('it is a symbolic link; remove it');
    expect(() => locked(() => {})).toThrow(expect.objectContaining({ code: 5, message }));
  });

  test('releases its own leases, and only those, when one fails', () => {
    put('10.0.0.3', 'other\r\neth0');
    put('10.0.0.9', 'cid\r\neth0');
    locked(store => {
      expect(() => store.reserve([give('10.0.0.2'), give('10.0.0.3', 1)], OWNER)).toThrow(
        'Cannot reserve 10.0.0.3',
      );
      expect(store.countTaken(give('10.0.0.2').ip, give('10.0.0.2').ip)).toBe(0);
    });
    expect(contents()).toEqual({ '10.0.0.3': 'other\r\neth0', '10.0.0.9': 'cid\r\neth0', lock: '' });
  });

  test('restores pointers as well, when one of them cannot be written', () => {
    put('last_reserved_ip.0', '10.0.0.7');
    mkdirSync(join(dir, 'last_reserved_ip.1', 'in the way'), { recursive: true });
    expect(() => locked(store => store.reserve([give('10.0.0.8'), give('fd00::8', 1)], OWNER))).toThrow();
    expect(listLeases(dir)).toEqual([]);
    expect(readFileSync(join(dir, 'last_reserved_ip.0'), 'utf8')).toBe('10.0.0.7');
    expect(free()).toBe('10.0.0.2');
  });

  test('continues where a crash left a half-written lease', () => {
    put('.catena-lease', 'hal');
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    expect(contents()['10.0.0.2']).toBe('cid\r\neth0');
    expect(existsSync(join(dir, '.catena-lease'))).toBe(false);
  });

  test('keeps a lease that a crash left linked to its unfinished name', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    Bun.spawnSync(['ln', join(dir, '10.0.0.2'), join(dir, '.catena-lease')]);
    locked(store => store.reserve([give('10.0.0.3', 0)], { containerId: 'second', ifname: 'eth0' }));
    expect(contents()['10.0.0.2']).toBe('cid\r\neth0');
    expect(existsSync(join(dir, '.catena-lease'))).toBe(false);
  });
});

describe('LeaseStore.reserve(), the pointer', () => {
  const pointer = (): string => join(dir, 'last_reserved_ip.0');
  const moveTo = (text: string): void => locked(store => store.reserve([give(text)], OWNER));

  test('is written in place, whatever length the text had', () => {
    const texts = ['10.0.0.2', '10.0.0.123', 'fd00::2', '1.1.1.1', 'fd00:aaaa:bbbb:cccc:dddd:eeee:ffff:1'];
    put('last_reserved_ip.0', 'garbage\n'.repeat(1000));
    const { ino } = statSync(pointer());
    for (const text of texts) {
      moveTo(text);
      expect([statSync(pointer()).ino, readFileSync(pointer(), 'utf8')]).toEqual([ino, text]);
    }
  });

  test('is recreated when the reference was killed before it made it, and after it emptied it', () => {
    moveTo('10.0.0.2');
    put('last_reserved_ip.0', '');
    moveTo('10.0.0.3');
    expect(readFileSync(pointer(), 'utf8')).toBe('10.0.0.3');
    rmSync(pointer());
    moveTo('10.0.0.4');
    expect(readFileSync(pointer(), 'utf8')).toBe('10.0.0.4');
  });

  test.each(['symbolic', 'hard'])('is never written through a %s link, which is removed', kind => {
    moveTo('10.0.0.2');
    rmSync(pointer());
    const lease = join(dir, '10.0.0.2');
    (kind === 'hard' ? linkSync : symlinkSync)(lease, pointer());
    moveTo('10.0.0.3');
    expect(readFileSync(lease, 'utf8')).toBe('cid\r\neth0');
    expect(lstatSync(pointer())).toMatchObject({ nlink: 1, mode: 0o100600 });
    expect(readFileSync(pointer(), 'utf8')).toBe('10.0.0.3');
  });

  test('does not wait when it is a pipe without a reader', () => {
    Bun.spawnSync(['mkfifo', pointer()]);
    moveTo('10.0.0.2');
    expect(readFileSync(pointer(), 'utf8')).toBe('10.0.0.2');
  });
});

describe('LeaseStore.findLeasesOf()', () => {
  test('finds by container and interface, not by container alone', () => {
    put('10.0.0.2', 'cid\r\neth0');
    put('10.0.0.3', 'cid\r\neth1');
    put('fd00::2', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER)).sort()).toEqual(['10.0.0.2', 'fd00::2']);
  });

  test('falls back to leases without interface', () => {
    put('10.0.0.2', 'cid');
    put('10.0.0.3', 'other');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.2']);
    put('10.0.0.4', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.4']);
  });

  test('ignores empty and foreign files', () => {
    put('10.0.0.2', '');
    put('10.0.0.3', 'cid\neth0');
    put('notes', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual([]);
  });

  test('sees changes by another program since the last call', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    put('10.0.0.3', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER)).sort()).toEqual(['10.0.0.2', '10.0.0.3']);
    rmSync(join(dir, '10.0.0.2'));
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.3']);
    rmSync(join(dir, '10.0.0.3'));
    put('10.0.0.2', 'other\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual([]);
  });

  test('sees a lease that another program wrote under an existing name', () => {
    const other = { containerId: 'other', ifname: 'eth0' };
    for (const n of [2, 3, 4, 5]) {
      locked(store => store.reserve([give(`10.0.0.${n}`)], { ...OWNER, containerId: `c${n}` }));
    }
    rmSync(join(dir, '10.0.0.3'));
    put('10.0.0.3', 'other\r\neth0');
    expect(locked(store => store.findLeasesOf(other))).toEqual(['10.0.0.3']);
    renameSync(join(dir, '10.0.0.3'), join(dir, '10.0.0.9'));
    expect(locked(store => store.findLeasesOf(other))).toEqual(['10.0.0.9']);
    expect(free()).toBe('10.0.0.3');
  });

  test('sees a lease that another program wrote under the name of one that was released', () => {
    const other = { containerId: 'other', ifname: 'eth0' };
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    locked(store => store.release(['10.0.0.2']));
    put('10.0.0.2', 'other\r\neth0');
    expect(locked(store => store.findKnownLeasesOf(other))).toEqual(['10.0.0.2']);
    rmSync(join(dir, '10.0.0.2'));
    expect(locked(store => store.findKnownLeasesOf(other))).toEqual([]);
    put('10.0.0.2', 'cid\r\neth0');
    expect(locked(store => store.findKnownLeasesOf(OWNER))).toEqual(['10.0.0.2']);
  });

  test('by name alone misses such a lease, but a full search later still finds it', () => {
    const other = { containerId: 'other', ifname: 'eth0' };
    for (const n of [2, 3]) {
      locked(store => store.reserve([give(`10.0.0.${n}`)], { ...OWNER, containerId: `c${n}` }));
    }
    rmSync(join(dir, '10.0.0.3'));
    put('10.0.0.3', 'other\r\neth0');
    put('10.0.0.9', 'new\r\neth0');
    expect(locked(store => store.findKnownLeasesOf({ ...OWNER, containerId: 'new' }))).toEqual(['10.0.0.9']);
    expect(locked(store => store.findKnownLeasesOf(other))).toEqual([]);
    // A change of ours does not make the index look complete.
    locked(store => store.reserve([give('10.0.0.4')], OWNER));
    expect(locked(store => store.findLeasesOf(other))).toEqual(['10.0.0.3']);
    expect(locked(store => store.findKnownLeasesOf(other))).toEqual(['10.0.0.3']);
  });

  test('finds both leases of an attachment when only one of them has a new name', () => {
    for (const n of [2, 3]) {
      locked(store => store.reserve([give(`10.0.0.${n}`)], { ...OWNER, containerId: `c${n}` }));
    }
    rmSync(join(dir, '10.0.0.3'));
    put('10.0.0.3', 'cid\r\neth0');
    put('fd00::9', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER)).sort()).toEqual(['10.0.0.3', 'fd00::9']);
  });

  test('trusts the lease, and not the index, when a program overwrote it in place', () => {
    const other = { containerId: 'other', ifname: 'eth0' };
    locked(store => store.reserve([give('10.0.0.2'), give('10.0.0.3')], OWNER));
    // Neither the time of the directory nor the note of the boot changes with that.
    put('10.0.0.2', 'cid');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.3']);
    put('10.0.0.3', 'other');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.2']);
    expect(locked(store => store.findLeasesOf(other))).toEqual(['10.0.0.3']);
    put('10.0.0.3', 'other\r\neth0');
    expect(locked(store => store.findLeasesOf(other))).toEqual(['10.0.0.3']);
    expect(locked(store => store.findLeasesOf({ ...other, ifname: 'eth1' }))).toEqual([]);
  });

  test('reuses what a failed call has read', () => {
    put('10.0.0.9', 'new\r\neth0');
    const failing = (): void => {
      locked(store => {
        store.findFree(parseIp('10.0.0.2'), parseIp('10.0.0.254'));
        throw new Error('exhausted');
      });
    };
    expect(failing).toThrow('exhausted');
    const learned = statSync(join(dir, '.catena-owners')).ino;
    put('10.0.0.10', 'newer\r\neth0');
    expect(failing).toThrow('exhausted');
    expect(statSync(join(dir, '.catena-owners')).ino).toBe(learned);
    expect(locked(store => store.findLeasesOf({ ...OWNER, containerId: 'newer' }))).toEqual(['10.0.0.10']);
  });

  test('finds leases of a call that was killed before it saved its own files', () => {
    locked(store => store.reserve([give('10.0.0.9')], { containerId: 'c9', ifname: 'eth0' }));
    const lost = join(dir, '.catena-owners');
    const earlier = readFileSync(lost);
    expect(() =>
      locked(store => {
        store.reserve([give('10.0.0.2')], OWNER);
        throw new Error('killed');
      }),
    ).toThrow('killed');
    put('10.0.0.3', 'c3\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.2']);
    expect(free()).toBe('10.0.0.4');
    writeFileSync(lost, earlier);
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.2']);
  });
});

test.each([
  ['an index', ['.catena-owners', 'lock']],
  ['no index', ['lock']],
])('who only looks leaves it known which leases others have deleted: with %s', (_, left) => {
  const network = 'podnet';
  withStore(dir, { reclaim: true, network }, store => store.reserve([give('10.0.0.2')], OWNER));
  for (const name of readdirSync(dir)) if (!left.includes(name)) rmSync(join(dir, name));
  const known = left.map(name => readFileSync(join(dir, name)));
  for (const look of [
    (store: LeaseStore) => store.findLeasesOf(OWNER).length,
    (store: LeaseStore) => store.countTaken(parseIp('10.0.0.2'), parseIp('10.0.0.9')),
  ])
    expect(withStore(dir, { reclaim: true, network, restores: false }, look)).toBe(0);
  expect(readdirSync(dir).sort()).toEqual(left);
  expect(left.map(name => readFileSync(join(dir, name)))).toEqual(known);
});

test('who cannot look who lost leases leaves it known that they were deleted', () => {
  const network = 'podnet';
  const store = (work: (store: LeaseStore) => unknown) => withStore(dir, { reclaim: true, network }, work);
  store(one => one.reserve([give('10.0.0.2')], OWNER));
  rmSync(join(dir, '10.0.0.2'));
  const cache = process.env.CATENA_CNI_CACHE_DIR;
  process.env.CATENA_CNI_CACHE_DIR = 'no\0path';
  const other = { ...OWNER, containerId: 'other' };
  expect(() => store(one => one.reserve([give('10.0.0.2')], other))).toThrow('cached results');
  if (cache === undefined) delete process.env.CATENA_CNI_CACHE_DIR;
  else process.env.CATENA_CNI_CACHE_DIR = cache;
  expect(listLeases(dir)).toEqual([]);
  expect(OwnerIndex.find(dir)?.listed()).toEqual(new Set(['10.0.0.2']));
});

describe('LeaseStore.findLastReserved()', () => {
  test('ignores a pointer with anything but an address', () => {
    put('last_reserved_ip.0', '10.0.0.7');
    put('last_reserved_ip.1', '10.0.0.7\n');
    const read = (index: number) => locked(store => store.findLastReserved(index));
    const first = read(0);
    expect(first && renderIp(first)).toBe('10.0.0.7');
    expect(read(1)).toBeUndefined();
    expect(read(2)).toBeUndefined();
  });
});

describe('LeaseStore.release()', () => {
  test('removes leases, and ignores missing ones', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    locked(store => store.release(['10.0.0.2', '10.0.0.3']));
    expect(listLeases(dir)).toEqual([]);
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual([]);
  });
});

describe('LeaseStore.findFree()', () => {
  test('skips leases of ours and of others, truncated and foreign files too', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    expect(free()).toBe('10.0.0.3');
    put('10.0.0.3', 'other\r\neth0');
    put('10.0.0.4', '{foreign}');
    expect(free()).toBe('10.0.0.5');
    put('10.0.0.5', '');
    expect(free(false)).toBe('10.0.0.6');
    locked(store => store.release(['10.0.0.3']));
    expect(free()).toBe('10.0.0.3');
  });

  test('agrees with a set after random changes by ours and others, in both families', () => {
    const [start, last] = [parseIp('10.0.0.200'), parseIp('10.0.4.255')];
    const taken = new Set<string>();
    for (let i = 0; i < 400; i++) {
      const text =
        i % 5
          ? `10.0.${(i * 7919) % 3}.${190 + ((i * 104729) % 66)}`
          : `fd00::${(1 + (i % 40)).toString(16)}`;
      const others = i % 3 === 0;
      if (taken.delete(text)) {
        if (others) rmSync(join(dir, text));
        else locked(store => store.release([text]));
      } else {
        taken.add(text);
        if (others) put(text, `c${i}\r\neth0`);
        else locked(store => store.reserve([give(text)], OWNER));
      }
      if (i % 20) continue;
      const row = Array.from({ length: 1000 }, (_, n) => offsetIp(start, BigInt(n)));
      const firstFree = row.find(ip => !taken.has(renderIp(ip)));
      const [found, count] = locked(store => [store.findFree(start, last), store.countTaken(start, last)]);
      expect([found, count]).toEqual([firstFree, row.filter(ip => taken.has(renderIp(ip))).length]);
    }
    const mine = locked(store => store.findLeasesOf(OWNER));
    const expected = listLeases(dir).filter(name => readFileSync(join(dir, name), 'utf8').startsWith('cid'));
    expect(mine.sort()).toEqual(expected.sort());
  });

  test('ends at the last address, also of a range of one and of the last there is', () => {
    for (const n of [2, 3, 4, 5, 6, 7, 8]) locked(store => store.reserve([give(`10.0.0.${n}`)], OWNER));
    const find = (from: string, to: string) => locked(store => store.findFree(parseIp(from), parseIp(to)));
    expect(find('10.0.0.2', '10.0.0.8')).toBeUndefined();
    expect(find('10.0.0.2', '10.0.0.9')).toEqual(parseIp('10.0.0.9'));
    expect(find('10.0.0.2', '10.0.0.2')).toBeUndefined();
    expect(find('10.0.7.5', '10.0.7.4')).toBeUndefined();
    const top = 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff';
    expect(find(top, top)).toEqual(parseIp(top));
  });
});

describe('LeaseStore, leases of an earlier boot', () => {
  test('are released when they are met, for every writer to see', () => {
    for (const n of [2, 3, 4]) put(`10.0.0.${n}`, `c${n}\r\neth0`);
    age('10.0.0.2');
    age('10.0.0.4');
    const reclaimed = locked(store => {
      store.findLeasesOf(OWNER);
      return store.reclaimed;
    });
    expect([reclaimed, free(), listLeases(dir)]).toEqual([2, '10.0.0.2', ['10.0.0.3']]);
  });

  test('stay when asked to, and are released as soon as not', () => {
    put('10.0.0.2', 'cid\r\neth0');
    age('10.0.0.2');
    expect(locked(store => store.findLeasesOf(OWNER), false)).toEqual(['10.0.0.2']);
    expect(locked(store => store.bootOf('10.0.0.2'), false)).toBe('earlier');
    expect(free(false)).toBe('10.0.0.3');
    expect(free(true)).toBe('10.0.0.2');
    expect(listLeases(dir)).toEqual([]);
  });

  test('are not recognised without a note, since the reference may have just written them', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    // As the reference does it: the file is deleted, and another one is created with its name and content.
    age('10.0.0.2');
    rmSync(join(dir, '10.0.0.2'));
    put('10.0.0.2', 'cid\r\neth0');
    put('10.0.0.3', 'c3\r\neth0');
    utimesSync(join(dir, '10.0.0.2'), 0, 0);
    expect(free()).toBe('10.0.0.4');
    expect(listLeases(dir).sort()).toEqual(['10.0.0.2', '10.0.0.3']);
    // Having been met, they carry the note of this boot for the next one.
    expect(bootOf(join(dir, '10.0.0.3'))).toBe('this');
    locked(store => store.meetAll());
    expect(bootOf(join(dir, '10.0.0.2'))).toBe('this');
  });

  test('are not recognised by a note of another machine, which may be running', () => {
    put('10.0.0.2', 'cid\r\neth0');
    age('10.0.0.2', 'another-machine');
    expect(free()).toBe('10.0.0.3');
    expect(bootOf(join(dir, '10.0.0.2'))).toBe('this');
  });

  test('are only those that this machine has noted, where other machines may lease from the directory, too', () => {
    put('10.0.0.2', 'theirs\r\neth0');
    age('10.0.0.2', 'another-machine');
    put('10.0.0.3', 'reference\r\neth0');
    put('10.0.0.4', 'ours\r\neth0');
    age('10.0.0.4');
    expect(isShareable(dir)).toBe(false);
    const shared = <T>(work: (store: LeaseStore) => T) =>
      withStore(dir, { reclaim: true, isShared: true }, work);
    const next = shared(store => store.findFree(parseIp('10.0.0.2'), parseIp('10.0.0.254')));
    expect(next && renderIp(next)).toBe('10.0.0.4');
    // Nothing is noted of them: this machine's next boot, or its GC, would release what a container of another one has.
    expect(['10.0.0.2', '10.0.0.3'].map(name => bootOf(join(dir, name)))).toEqual(['unknown', 'unknown']);
    const log = { warn() {} } as unknown as Log;
    const none = keptWith([], Date.now() + 60_000);
    expect(shared(store => unusedGarbage(store, dir, none, log))).toEqual([]);
    expect(locked(store => unusedGarbage(store, dir, none, log)).sort()).toEqual(['10.0.0.2', '10.0.0.3']);
  });

  test('include none of ours, which have a note from the start', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    expect(bootOf(join(dir, '10.0.0.2'))).toBe('this');
  });
});

test('a lease of an IPv4 address takes no IPv6 address of the same number', () => {
  for (let i = 2; i < 9; i++) put(`10.0.0.${i}`, 'cid\r\neth0');
  const [from, to] = [parseIp('::a00:2'), parseIp('::a00:ff')];
  for (let i = 2; i < 7; i++)
    locked(store => store.reserve([give(`::a00:${i}`)], { ...OWNER, ifname: `e${i}` }));
  expect(locked(store => store.countTaken(from, to))).toBe(5);
  expect(renderIp(locked(store => store.findFree(from, to)) ?? from)).toBe('::a00:7');
});

describe('withStore()', () => {
  test('fails with "try again later" when the lock cannot be opened', () => {
    expect(() => withStore('/nonexistent/leases', { reclaim: true }, () => 0)).toThrow();
  });

  test('creates the directory only on request', () => {
    const deep = join(dir, 'networks/podnet');
    expect(() => withStore(deep, { reclaim: true }, () => 0)).toThrow(expect.objectContaining({ code: 5 }));
    expect(withStore(deep, { reclaim: true, create: true }, () => 7)).toBe(7);
    expect(statSync(deep).mode & 0o777).toBe(0o755 & ~process.umask());
  });

  test('does not wait forever', () => {
    const inner = () => withStore(dir, { reclaim: true, deadlineMs: 20 }, () => 0);
    expect(() => locked(inner)).toThrow(expect.objectContaining({ code: 11 }));
  });
});

describe('findGarbage()', () => {
  const files: Record<string, string> = {
    '10.0.0.2': 'one\r\neth0',
    '10.0.0.3': 'one\r\neth1',
    '10.0.0.4': 'one',
    '10.0.0.5': 'two',
    '10.0.0.6': '',
    '10.0.0.7': '{}',
  };
  const store = {
    findOwner: (address: string) => parseOwner(files[address] ?? ''),
    isTorn: (address: string) => files[address] === '',
    findTime: () => 1_000,
  };
  const find = (valid: { containerID: string; ifname: string }[], since = 20_000) =>
    findGarbage(store, Object.keys(files), keptWith(valid, since));

  test('keeps listed leases and unknown files', () => {
    expect(find([{ containerID: 'one', ifname: 'eth0' }])).toEqual(['10.0.0.3', '10.0.0.5', '10.0.0.6']);
  });
  test('keeps leases written after GC began, by either plugin', () => {
    expect(find([], 1_000)).toEqual(['10.0.0.6']);
  });
  test('keeps leases without a note that are a few seconds old: their ADD may be in progress', () => {
    expect(find([], 11_000)).toEqual(['10.0.0.6']);
    expect(find([], 11_001)).toContain('10.0.0.2');
  });
  test('deletes leases as young as that if a note tells that their ADD began before GC', () => {
    const kept = { ...keptWith([], 2_000), isNoted: ({ ifname }: { ifname: string }) => ifname === 'eth1' };
    expect(findGarbage(store, Object.keys(files), kept)).toEqual(['10.0.0.3', '10.0.0.6']);
    // One of the same tick of the clock may be of an ADD that began after GC.
    expect(findGarbage(store, Object.keys(files), { ...kept, since: 1_000 })).toEqual(['10.0.0.6']);
  });
  test('deletes leases of a future from which the clock was set back: they would be new for as long', () => {
    const dated = { ...store, findTime: () => 4_000_000 };
    const find = (since: number) => findGarbage(dated, ['10.0.0.2'], keptWith([], since));
    expect([find(400_000), find(400_001)]).toEqual([['10.0.0.2'], []]);
  });
  test('an empty list keeps foreign files only', () => {
    expect(find([])).toEqual(['10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5', '10.0.0.6']);
  });
});
