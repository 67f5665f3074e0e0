// Do two programs that write whereabouts' objects at once ever double or lose an address, and are its known defects absent?
import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allocate,
  type Books,
  findSlice,
  type Holder,
  poolsOfNode,
  release,
} from '../../plugins/whereabouts/books.ts';
import { planRanges, reservationName } from '../../plugins/whereabouts/plan.ts';
import type { JsonObject } from '../../src/cni/json.ts';
import { parseIp, renderIp } from '../../src/net/ip.ts';
import { deadline } from '../helpers/deadline.ts';
import { Random } from '../storm/random.ts';
import { type ApiModel, apiModel } from './api-model.ts';
import { clientOf, DIRECT, FATES, type Fate } from './faults.ts';

setDefaultTimeout(deadline(120_000));

const API = 'apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system';

function cluster(seed = 1) {
  const model = apiModel();
  const draws = new Random(seed);
  const way = { ...DIRECT };
  const server = () => clientOf(model, { fate: () => way.fate(), latencyMs: () => way.latencyMs() });
  const books = (more: Partial<Books> = {}): Books => ({
    ...{ server: server(), namespace: 'kube-system', network: '', overlapping: true },
    ...{ giveUpAt: performance.now() + 20_000, settleMs: 0, random: () => draws.next() / 20, ...more },
  });
  return { model, draws, way, books, server };
}

const pod = (n: number | string, ifname = 'net1'): Holder => ({
  id: `c-${n}`,
  podref: `ns/pod-${n}`,
  ifname,
});
const rangesOf = (ipam: Parameters<typeof planRanges>[0]) => planRanges(ipam);
const range = (text: string, more = {}) => {
  const [one] = rangesOf({ range: text, ...more });
  if (one === undefined) throw new Error('no range');
  return one;
};

/** A client before whose nth request others do all of theirs. */
function interrupted(server: ReturnType<typeof clientOf>, at: number, others: () => Promise<unknown>) {
  let sent = 0;
  const ask: typeof server.ask = async (...question) => {
    if (++sent === at) await others();
    return server.ask(...question);
  };
  return { server: { ...server, ask }, isReached: () => sent >= at };
}

/** Entries of a pool: address to pod. */
function entries(model: ApiModel, poolName: string): Record<string, string> {
  const spec = model.objects.get(`${API}/ippools/${poolName}`)?.spec as
    | { range: string; allocations: Record<string, Holder> }
    | undefined;
  const first = parseIp(spec?.range.split('/')[0] ?? '0.0.0.0');
  return Object.fromEntries(
    Object.entries(spec?.allocations ?? {}).map(([offset, { podref, ifname }]) => {
      return [renderIp({ ...first, value: first.value + BigInt(offset) }), `${podref}/${ifname}`];
    }),
  );
}

function reservations(model: ApiModel): Record<string, string> {
  return Object.fromEntries(
    [...model.objects].flatMap(([path, { spec }]) => {
      const name = path.startsWith(`${API}/overlapping`) ? path.split('/').at(-1) : undefined;
      return name
        ? [[name, `${(spec as unknown as Holder).podref}/${(spec as unknown as Holder).ifname}`]]
        : [];
    }),
  );
}

/** One ADD as whereabouts does it, without its lease: reads, patches under the version, then reserves. */
async function originalAdd(
  server: ReturnType<typeof clientOf>,
  poolName: string,
  holder: Holder,
): Promise<string> {
  for (;;) {
    const pool = (await server.ask('GET', `${API}/ippools/${poolName}`)) as JsonObject & {
      metadata: JsonObject;
      spec: { allocations: JsonObject };
    };
    let offset = 1;
    while (pool.spec.allocations[offset]) offset++;
    const operations = [
      { op: 'test', path: '/metadata/resourceVersion', value: pool.metadata.resourceVersion },
      { op: 'add', path: `/spec/allocations/${offset}`, value: holder },
    ];
    if (!(await server.ask('PATCH', `${API}/ippools/${poolName}`, operations, [409, 422]))) continue;
    const name = `10.1.0.${offset}`;
    const body = { metadata: { name }, spec: { podref: holder.podref, ifname: holder.ifname } };
    await server.ask('POST', `${API}/overlappingrangeipreservations`, body);
    return name;
  }
}

describe('objects of whereabouts', () => {
  test('are named and numbered as whereabouts does', async () => {
    const { model, books } = cluster();
    const [four, six] = rangesOf({
      ipRanges: [{ range: '10.1.0.16/28' }, { range: 'fd00::/112' }],
      network_name: 'blue',
    });
    if (!four || !six) throw new Error('no ranges');
    const blue = books({ network: 'blue' });
    expect(renderIp(await allocate(blue, four, pod(1)))).toBe('10.1.0.17');
    expect(renderIp(await allocate(blue, six, pod(1)))).toBe('fd00::1');
    expect(model.objects.get(`${API}/ippools/blue-10.1.0.16-28`)?.spec).toEqual({
      range: '10.1.0.16/28',
      allocations: { '1': { id: 'c-1', podref: 'ns/pod-1', ifname: 'net1' } },
    });
    expect([...model.objects.keys()]).toContain(`${API}/ippools/blue-fd00---112`);
    expect(Object.keys(reservations(model)).sort()).toEqual(['blue-10.1.0.17', 'blue-fd00--1']);
    expect(reservationName(parseIp('fd00::'))).toBe('fd00--0');
  });

  test('two programs write 200 addresses at once: none twice, every one reserved', async () => {
    const { model, books, server, way, draws } = cluster(3);
    const one = range('10.1.0.0/24');
    await allocate(books(), one, pod('first'));
    way.latencyMs = () => draws.next() / 4;
    const ours = books();
    const given = await Promise.all([
      ...Array.from({ length: 30 }, (_, i) => allocate(ours, one, pod(i)).then(renderIp)),
      ...Array.from({ length: 30 }, (_, i) => originalAdd(server(), one.poolName, pod(`theirs-${i}`))),
    ]);
    expect(new Set(given).size).toBe(60);
    expect(Object.keys(entries(model, one.poolName))).toHaveLength(61);
    expect(reservations(model)).toEqual(entries(model, one.poolName));
  });

  test.each([...FATES])(
    'each request %s, at every point: entries and reservations agree after the next ADD and DEL',
    async fate => {
      let at = 1;
      for (let isReached = true; isReached; at++) {
        const { model, books, way } = cluster(at);
        const [one, other] = [range('10.1.0.0/29'), range('10.1.0.0/28')];
        const on = (each: typeof one, n: number) => pod(n, each === one ? 'net1' : 'net2');
        let sent = 0;
        way.fate = (): Fate => (++sent === at ? fate : 'arrives');
        const ours = books();
        const doomed = (work: Promise<unknown>) => work.catch(() => undefined);
        for (const n of [1, 2, 3])
          for (const each of [one, other]) await doomed(allocate(ours, each, on(each, n)));
        for (const each of [one, other]) await doomed(release(ours, each, on(each, 2)));
        isReached = sent >= at;
        way.fate = () => 'arrives';
        // A runtime calls DEL of what failed, and ADD again.
        for (const each of [one, other]) await release(ours, each, on(each, 2));
        for (const n of [1, 3]) for (const each of [one, other]) await allocate(ours, each, on(each, n));
        const all = { ...entries(model, one.poolName), ...entries(model, other.poolName) };
        expect({ at, count: Object.keys(all).length }).toEqual({ at, count: 4 });
        // A reservation that came late names a pod without an entry: the next ADD that wants the address deletes it.
        for (const n of [5, 6]) await allocate(ours, other, pod(n));
        const held = { ...entries(model, one.poolName), ...entries(model, other.poolName) };
        expect(Object.keys(held)).toHaveLength(6);
        for (const [address, holder] of Object.entries(held))
          expect({ at, [address]: reservations(model)[address] }).toEqual({ at, [address]: holder });
      }
      expect(at).toBeGreaterThan(20);
    },
  );
});

describe('a pool of whereabouts', () => {
  const one = range('10.1.0.0/28');
  const originalDel = async (server: ReturnType<typeof clientOf>, id: string): Promise<void> => {
    const path = `${API}/ippools/${one.poolName}`;
    const pool = (await server.ask('GET', path)) as unknown as {
      metadata: JsonObject;
      spec: { allocations: Record<string, Holder> };
    };
    const [offset] = Object.entries(pool.spec.allocations).find(([, entry]) => entry.id === id) ?? [];
    await server.ask('PATCH', path, [
      { op: 'test', path: '/metadata/resourceVersion', value: pool.metadata.resourceVersion },
      { op: 'remove', path: `/spec/allocations/${offset}` },
    ]);
    await server.ask('DELETE', `${API}/overlappingrangeipreservations/10.1.0.${offset}`);
  };

  test('is adopted with its pods: they keep their addresses, and our DEL frees them', async () => {
    const { model, books, server } = cluster();
    model.put(`${API}/ippools/${one.poolName}`, {
      metadata: { name: one.poolName },
      spec: { range: '10.1.0.0/28', allocations: {} },
    });
    for (const n of [1, 2, 3]) await originalAdd(server(), one.poolName, pod(n));
    expect(renderIp(await allocate(books(), one, pod(4)))).toBe('10.1.0.4');
    // A new sandbox of a pod that whereabouts attached.
    expect(renderIp(await allocate(books(), one, { ...pod(2), id: 'c-2-again' }))).toBe('10.1.0.2');
    for (const n of [1, 3]) await release(books(), one, pod(n));
    expect(entries(model, one.poolName)).toEqual({
      '10.1.0.2': 'ns/pod-2/net1',
      '10.1.0.4': 'ns/pod-4/net1',
    });
    expect(reservations(model)).toEqual(entries(model, one.poolName));
  });

  test('of which whereabouts has removed an entry but not yet the reservation keeps the reservation of the next pod', async () => {
    const { model, books, server } = cluster();
    await allocate(books(), one, pod('old'));
    const path = `${API}/ippools/${one.poolName}`;
    await server().ask('PATCH', path, [{ op: 'remove', path: '/spec/allocations/1' }]);
    const next = allocate(books({ settleMs: 300 }), one, pod('new'));
    await sleep(100);
    await server().ask('DELETE', `${API}/overlappingrangeipreservations/10.1.0.1`);
    expect(renderIp(await next)).toBe('10.1.0.1');
    expect(reservations(model)).toEqual({ '10.1.0.1': 'ns/pod-new/net1' });
  });

  test('with several entries of one interface is left by all of them, and by no other', async () => {
    const { model, books } = cluster();
    const holder = pod(1);
    model.put(`${API}/ippools/${one.poolName}`, {
      metadata: { name: one.poolName },
      spec: {
        range: '10.1.0.0/28',
        allocations: { '1': { ...holder }, '2': { ...holder, ifname: 'net2' }, '7': { ...holder } },
      },
    });
    await release(books(), one, holder);
    expect(entries(model, one.poolName)).toEqual({ '10.1.0.2': 'ns/pod-1/net2' });
  });

  test('is handed back: whereabouts frees what this plugin gave, and goes on', async () => {
    const { model, books, server } = cluster();
    for (const n of [1, 2, 3]) await allocate(books(), one, pod(n));
    await originalDel(server(), 'c-2');
    expect(await originalAdd(server(), one.poolName, pod('theirs'))).toBe('10.1.0.2');
    expect(entries(model, one.poolName)).toEqual({
      '10.1.0.1': 'ns/pod-1/net1',
      '10.1.0.2': 'ns/pod-theirs/net1',
      '10.1.0.3': 'ns/pod-3/net1',
    });
    expect(reservations(model)).toEqual(entries(model, one.poolName));
  });

  test('without a place for entries gets one', async () => {
    const { model, books } = cluster();
    model.put(`${API}/ippools/${one.poolName}`, {
      metadata: { name: one.poolName },
      spec: { range: '10.1.0.0/28' },
    });
    await allocate(books(), one, pod(1));
    expect(entries(model, one.poolName)).toEqual({ '10.1.0.1': 'ns/pod-1/net1' });
  });

  test('gives a requested address to one pod alone', async () => {
    const { books } = cluster();
    const wanted = parseIp('10.1.0.9');
    expect(renderIp(await allocate(books(), one, pod(1), wanted))).toBe('10.1.0.9');
    expect(allocate(books(), one, pod(2), wanted)).rejects.toMatchObject({ code: 11 });
    expect(renderIp(await allocate(books(), one, pod(2)))).toBe('10.1.0.1');
  });

  test('is divided by its controller: each node uses its slice, without what the range excludes', async () => {
    const { model, books, server } = cluster();
    model.put(`${API}/nodeslicepools/10.1.0.0-24`, {
      metadata: { name: '10.1.0.0-24' },
      status: { allocations: [{ nodeName: 'a', sliceRange: '10.1.0.64/28' }] },
    });
    const whole = range('10.1.0.0/24', { node_slice_size: '/28', exclude: ['10.1.0.65'] });
    const slice = await findSlice(books(), whole, 'a', 'podnet');
    expect(slice).toMatchObject({ prefix: 24, poolName: 'a-10.1.0.64-28' });
    expect(renderIp(await allocate(books(), slice, pod(1)))).toBe('10.1.0.66');
    expect(model.objects.get(`${API}/ippools/a-10.1.0.64-28`)?.spec).toMatchObject({
      range: '10.1.0.64/28',
      allocations: { '2': { id: 'c-1' } },
    });
    // A slice moves, or goes with its object: what was allocated from it is found by the pools of the node.
    model.put(`${API}/nodeslicepools/10.1.0.0-24`, { metadata: { name: '10.1.0.0-24' }, status: {} });
    await allocate(books(), { ...slice, poolName: 'a-b-10.1.0.64-28' }, pod(2));
    const held = await poolsOfNode(books(), whole, 'a');
    expect(held).toEqual([{ ...slice, free: [] }]);
    for (const each of held) await release(books(), each, pod(1));
    expect(entries(model, 'a-10.1.0.64-28')).toEqual({});
    expect(Object.keys(entries(model, 'a-b-10.1.0.64-28'))).toHaveLength(1);
    // The pools of a large cluster are too long for one reply.
    for (let i = 0; i < 600; i++)
      model.put(`${API}/ippools/b${i}`, { metadata: { name: `b${i}` }, spec: { range: '10.9.0.0/28' } });
    const { ask, ...more } = server();
    const inParts: typeof ask = (method, path, ...rest) =>
      path.endsWith('/ippools') ? Promise.reject(new Error('too long')) : ask(method, path, ...rest);
    expect(await poolsOfNode(books({ server: { ...more, ask: inParts } }), whole, 'a')).toEqual(held);
    // One without a slice gets an answer, where the original crashes.
    expect(findSlice(books(), whole, 'b', 'podnet')).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('node "b" has no slice'),
    });
    expect(() =>
      rangesOf({ ipRanges: [{ range: '10.1.0.0/24' }, { range: '10.2.0.0/24' }], node_slice_size: '/28' }),
    ).toThrow('one range');
  });
});

describe('defects of whereabouts', () => {
  test('ADDs of one pod do not exclude each other by an identity that they share', async () => {
    const { books, model } = cluster();
    const one = range('10.1.0.0/24');
    const ips = await Promise.all(
      ['net1', 'net2', 'net3'].map(ifname => allocate(books(), one, pod(1, ifname))),
    );
    expect(new Set(ips.map(renderIp)).size).toBe(3);
    expect(Object.keys(entries(model, one.poolName))).toHaveLength(3);
  });

  test('the reservation of a named network over IPv6 is found by its name: dashes are not turned into colons', async () => {
    const { books, model } = cluster();
    const [six] = rangesOf({ range: 'fd00::/112', network_name: 'blue-net' });
    if (six === undefined) throw new Error('no range');
    const blue = books({ network: 'blue-net' });
    await allocate(blue, six, pod(1));
    expect(Object.keys(reservations(model))).toEqual(['blue-net-fd00--1']);
    await release(blue, six, pod(1));
    expect(reservations(model)).toEqual({});
  });

  test('a reservation of this pod in one range does not spare that in the next', async () => {
    const { books, model } = cluster();
    const [one, two] = [range('10.1.0.0/24'), range('10.2.0.0/24')];
    await allocate(books(), one, pod(1, 'net1'));
    for (const each of [one, two]) await allocate(books(), each, pod(1, each === one ? 'net1' : 'net2'));
    expect(reservations(model)).toEqual({ '10.1.0.1': 'ns/pod-1/net1', '10.2.0.1': 'ns/pod-1/net2' });
  });

  test('DEL releases every range, although the first has no entry', async () => {
    const { model, books } = cluster();
    const [one, two] = [range('10.1.0.0/24'), range('10.2.0.0/24')];
    await allocate(books(), two, pod(1));
    for (const each of [one, two]) await release(books(), each, pod(1));
    expect(entries(model, two.poolName)).toEqual({});
    expect(reservations(model)).toEqual({});
  });

  test('a pool that neither exists nor can be created fails the ADD in time', async () => {
    const { books, server } = cluster();
    const { ask } = server();
    let sent = 0;
    const refusing: typeof ask = async (method, ...rest) => {
      if (++sent > 100) throw new Error('no end');
      return method === 'POST' ? undefined : ask(method, ...rest);
    };
    const late = books({ server: { ...server(), ask: refusing }, giveUpAt: performance.now() });
    await expect(allocate(late, range('10.1.0.0/24'), pod(1))).rejects.toMatchObject({ code: 11 });
  });

  test('DEL reports that it could not release', async () => {
    const { books, way } = cluster();
    const one = range('10.1.0.0/24');
    await allocate(books(), one, pod(1));
    way.fate = () => 'fails';
    expect(release(books(), one, pod(1))).rejects.toMatchObject({ code: 11 });
  });

  test('a pool that cannot be written fails the ADD, and no reservation hides it', async () => {
    const { model, books, way } = cluster();
    const one = range('10.1.0.0/24');
    await allocate(books(), one, pod(1));
    let sent = 0;
    way.fate = () => (++sent === 2 ? 'fails' : 'arrives');
    expect(allocate(books(), one, pod(2))).rejects.toMatchObject({ code: 11 });
    expect(reservations(model)).toEqual({ '10.1.0.1': 'ns/pod-1/net1' });
  });

  test('a new sandbox of a pod keeps its address, and the late DEL of the former one frees nothing', async () => {
    const { model, books } = cluster();
    const one = range('10.1.0.0/24');
    const again = { ...pod(1), id: 'c-new' };
    expect(renderIp(await allocate(books(), one, pod(1)))).toBe('10.1.0.1');
    expect(renderIp(await allocate(books(), one, again))).toBe('10.1.0.1');
    await release(books(), one, pod(1));
    expect(entries(model, one.poolName)).toEqual({ '10.1.0.1': 'ns/pod-1/net1' });
    await release(books(), one, again);
    expect(entries(model, one.poolName)).toEqual({});
  });

  test('a new sandbox keeps entry and reservation, at whichever point of the late DEL of the former one it comes', async () => {
    const one = range('10.1.0.0/24');
    let at = 1;
    for (let isReached = true; isReached; at++) {
      const { model, books, server } = cluster();
      await allocate(books(), one, pod(1));
      const again = () => allocate(books(), one, { ...pod(1), id: 'c-new' });
      const late = interrupted(server(), at, again);
      await release(books({ server: late.server }), one, pod(1));
      isReached = late.isReached();
      if (!isReached) await again();
      const held = { at, '10.1.0.1': 'ns/pod-1/net1' };
      expect({ at, ...entries(model, one.poolName) }).toEqual(held);
      expect({ at, ...reservations(model) }).toEqual(held);
    }
    expect(at).toBeGreaterThan(5);
  });

  test('an address whose reservation a dead program left goes to one of two pods, at whichever point one overtakes the other', async () => {
    const [one, other] = [range('10.1.0.0/24'), range('10.1.0.0/16')];
    let at = 1;
    for (let isReached = true; isReached; at++) {
      const { model, books, server } = cluster();
      model.put(`${API}/overlappingrangeipreservations/10.1.0.1`, {
        metadata: { name: '10.1.0.1' },
        spec: { podref: 'ns/pod-1', ifname: 'net1', containerid: 'c-before' },
      });
      const overtaken = interrupted(server(), at, () => allocate(books(), one, pod(1)));
      await allocate(books({ server: overtaken.server }), other, pod(2));
      isReached = overtaken.isReached();
      const pools = [one, other].map(({ poolName }) => entries(model, poolName));
      const held = Object.assign({}, ...pools);
      expect({ at, given: pools.flatMap(Object.keys).length }).toEqual({
        at,
        given: Object.keys(held).length,
      });
      expect({ at, ...reservations(model) }).toEqual({ at, ...held });
    }
    expect(at).toBeGreaterThan(8);
  });

  test('a new sandbox that asks for another address, or whose former one is now excluded, gets one that will do', async () => {
    const { model, books } = cluster();
    const whole = range('10.1.0.0/24');
    const sandbox = (n: number) => ({ ...pod(1), id: `c-1-${n}` });
    expect(renderIp(await allocate(books(), whole, sandbox(1)))).toBe('10.1.0.1');
    expect(renderIp(await allocate(books(), whole, sandbox(2), parseIp('10.1.0.7')))).toBe('10.1.0.7');
    expect(entries(model, whole.poolName)).toEqual({ '10.1.0.7': 'ns/pod-1/net1' });
    const smaller = range('10.1.0.0/24', { exclude: ['10.1.0.1', '10.1.0.7'] });
    expect(renderIp(await allocate(books(), smaller, sandbox(3)))).toBe('10.1.0.2');
    expect(entries(model, whole.poolName)).toEqual({ '10.1.0.2': 'ns/pod-1/net1' });
    expect(reservations(model)).toEqual({ '10.1.0.2': 'ns/pod-1/net1' });
    // A wanted one that another pod has is refused; what the pod had is freed before, as it would not do.
    await allocate(books(), whole, pod(2), parseIp('10.1.0.9'));
    await expect(allocate(books(), whole, sandbox(4), parseIp('10.1.0.9'))).rejects.toThrow(
      'another pod has it',
    );
  });

  test('two interfaces of a pod in overlapping ranges get two addresses, and keep both reservations', async () => {
    const { model, books } = cluster();
    const [one, two] = [range('10.1.0.0/24'), range('10.1.0.0/16')];
    await allocate(books(), one, pod(1, 'net1'));
    expect(renderIp(await allocate(books(), two, pod(1, 'net2')))).toBe('10.1.0.2');
    expect(reservations(model)).toEqual({ '10.1.0.1': 'ns/pod-1/net1', '10.1.0.2': 'ns/pod-1/net2' });
  });

  test('a reservation without an entry is replaced, one with an entry is not', async () => {
    const { model, books } = cluster();
    const one = range('10.1.0.0/24');
    model.put(`${API}/overlappingrangeipreservations/10.1.0.1`, {
      metadata: { name: '10.1.0.1' },
      spec: { podref: 'ns/gone', ifname: 'net1' },
    });
    expect(renderIp(await allocate(books(), one, pod(1)))).toBe('10.1.0.1');
    expect(reservations(model)).toEqual({ '10.1.0.1': 'ns/pod-1/net1' });
  });

  test('a full range says so', async () => {
    const { books } = cluster();
    const one = range('10.1.0.5-10.1.0.6/24', { exclude: ['10.1.0.6'] });
    await allocate(books(), one, pod(1));
    expect(allocate(books(), one, pod(2))).rejects.toMatchObject({
      code: 11,
      message: expect.stringContaining('(1 in use)'),
    });
  });
});
