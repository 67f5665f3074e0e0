import { describe, expect, test } from 'bun:test';
import { openReading, openSources } from '../../../src/ui/sources.ts';
import { until } from '../../helpers/until.ts';

const ID = 'mwtixgohqiyq';
const one = { network: 'n', containerId: 'c', ifname: 'eth0' };

/** Commands that print these texts. */
function scene(texts: Readonly<Record<string, unknown>>) {
  const asked: string[] = [];
  const sources = openSources(async args => {
    const line = args.join(' ');
    asked.push(line);
    if (!(line in texts)) throw new Error(`Cannot run "${line}"`);
    return JSON.stringify(texts[line]);
  });
  const read = async (path: string) => JSON.parse((await sources.answer(path))?.text ?? 'null');
  return { asked, sources, read };
}

describe('the node', () => {
  const ls = { time: '2026-01-01T00:00:00Z', networks: [], attachments: [one] };
  const broken = { ...one, health: { state: 'broken', problem: 'gone' } };

  test('is answered without waiting for CHECK, and has its outcome afterwards', async () => {
    const { read, sources } = scene({ ls, 'ls --check': { ...ls, attachments: [broken] } });
    const early = await sources.answer('node');
    expect(JSON.parse(early?.text ?? '').attachments).toEqual([one]);
    await until(async () => (await read('node')).attachments[0].health !== undefined, { withinMs: 5_000 });
    const late = await read('node');
    expect(late).toMatchObject({ time: ls.time, attachments: [broken], checkedAt: expect.any(String) });
    expect((await sources.answer('node'))?.etag).not.toBe(early?.etag);
  });

  test('says why CHECK cannot be run', async () => {
    const { read } = scene({ ls });
    await read('node');
    await until(async () => (await read('node')).checkProblem !== undefined, { withinMs: 5_000 });
    expect(await read('node')).toMatchObject({ attachments: [one], checkProblem: 'Cannot run "ls --check"' });
  });

  test('fails with the message of the command', async () => {
    await expect(scene({}).read('node')).rejects.toThrow('Cannot run "ls"');
  });
});

test('leases are those of every network with a directory for them', async () => {
  const lease = { network: 'a', address: '10.1.0.2' };
  const networks = [
    { name: 'a', leaseDirs: ['/leases/a'] },
    { name: 'b', leaseDirs: [] },
    { name: 'c', leaseDirs: ['/leases/c'] },
  ];
  const { read } = scene({ ls: { networks }, 'ipam ls -- a': { items: [lease] } });
  expect(await read('leases')).toEqual([lease]);
});

test('requests are listed without what they printed, the newest first', async () => {
  const record = (id: string) => ({
    id,
    verb: 'ADD',
    network: 'n',
    containerId: 'c',
    ifname: 'eth0',
    code: 0,
  });
  const { read } = scene({
    'log --requests': {
      items: [
        { ...record('a'), result: {}, plugins: [] },
        { ...record('b'), plugins: [] },
      ],
    },
  });
  expect(await read('traces')).toEqual([record('b'), record('a')]);
});

test('a list is that of the file which the node names for its network', async () => {
  const networks = [{ name: 'a', file: '/etc/cni/net.d/a.conflist' }, { name: '11' }];
  const { asked, read } = scene({
    ls: { networks },
    'validate --explain -- /etc/cni/net.d/a.conflist': { plugins: [{ type: 'x' }] },
  });
  expect(await read('lists/a')).toEqual({ plugins: [{ type: 'x' }] });
  for (const none of ['lists/11', 'lists/b', 'lists/..']) expect(await read(none)).toEqual({ plugins: [] });
  expect(asked.filter(line => line.startsWith('validate'))).toHaveLength(1);
});

test('only the id of a trace reaches a command', async () => {
  const { asked, read, sources } = scene({ [`log ${ID}`]: { id: ID } });
  expect(await read(`traces/${ID}`)).toEqual({ id: ID });
  const others = [
    '',
    'add',
    'traces/',
    'traces/--kernel',
    `traces/${ID}/x`,
    `traces/${ID}x`,
    'lists/',
    'lists/a/b',
    'lists/%2e%2e',
    '__proto__',
    'toString',
  ];
  expect(others.filter(path => sources.answer(path) !== undefined)).toEqual([]);
  expect(asked).toEqual([`log ${ID}`]);
});

/** A clock that stands still, and a reading that takes a time by it. */
function standing(tookMs: number) {
  const clock = { now: 0 };
  let times = 0;
  const reading = openReading(
    async () => {
      clock.now += tookMs;
      return `reading ${++times}`;
    },
    1_000,
    () => clock.now,
  );
  return { clock, reading, text: async () => (await reading.get()).text };
}

test('readers at the same time share one reading', async () => {
  const { reading } = standing(5);
  const [a, b] = await Promise.all([reading.get(), reading.get()]);
  expect(a).toBe(b);
  expect(reading.latest).toBe(a);
});

test('a fast reading rests for the shortest time, a slow one for nine times as long as it took', async () => {
  for (const [tookMs, restMs] of [
    [5, 1_000],
    [400, 3_600],
  ] as const) {
    const { clock, text } = standing(tookMs);
    expect(await text()).toBe('reading 1');
    clock.now += restMs - 1;
    expect(await text()).toBe('reading 1');
    clock.now += 1;
    expect(await text()).toBe('reading 2');
  }
});

test('a change shortens the rest, but not below what the reading took', async () => {
  const { clock, reading, text } = standing(400);
  await text();
  reading.hurry(100);
  clock.now += 399;
  expect(await text()).toBe('reading 1');
  clock.now += 1;
  expect(await text()).toBe('reading 2');
});

test('a change during a reading leads to another one soon', async () => {
  const { clock, reading, text } = standing(400);
  const first = text();
  reading.hurry(500);
  await first;
  clock.now += 499;
  expect(await text()).toBe('reading 1');
  clock.now += 1;
  expect(await text()).toBe('reading 2');
  clock.now += 3_599;
  expect(await text()).toBe('reading 2');
});

test('a reading that fails is tried again', async () => {
  let fails = true;
  const reading = openReading(async () => {
    if (fails) throw new Error('not yet');
    return 'done';
  }, 1_000);
  await expect(reading.get()).rejects.toThrow('not yet');
  fails = false;
  expect((await reading.get()).text).toBe('done');
});

test('the tag follows the content', async () => {
  const of = async (text: string) => (await openReading(async () => text, 0).get()).etag;
  expect(await of('a')).toBe(await of('a'));
  expect(await of('a')).not.toBe(await of('b'));
  expect(await of('a')).toMatch(/^"[\w-]{22}"$/);
});

test('a packet is followed between names, addresses and ports; an option or a path of a file is not one', async () => {
  const walk = { outcome: 'arrives' };
  const { asked, read, sources } = scene({
    'why-not -- :8080': walk,
    'why-not -- shop/web [fd00::7]:53/udp': walk,
  });
  expect(await read('why-not/~:8080')).toEqual(walk);
  expect(await read('why-not/shop/web~[fd00::7]:53/udp')).toEqual(walk);
  expect(asked).toHaveLength(2);
  for (const [from, to] of [
    ['-x', ':80'],
    ['', '--etc=/x'],
    ['/etc/passwd', ':80'],
    ['a/../b', ':80'],
    ['', ''],
    ['a b', ':1'],
  ])
    expect(sources.answer(`why-not/${from}~${to}`)).toBeUndefined();
  expect(sources.answer(`why-not/${'a'.repeat(500)}~:80`)).toBeUndefined();
});
