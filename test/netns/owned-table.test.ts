// Does a table of ours survive what else happens to it?

import { afterAll, expect, test } from 'bun:test';
import {
  addEntries,
  deleteElements,
  type Entry,
  findElement,
  listElements,
  recount,
} from '../../src/netlink/nft/element.ts';
import { commit } from '../../src/netlink/nft/message.ts';
import {
  changeOwned,
  findNumbered,
  findOwned,
  findOwnedProblems,
  listOwned,
  placeOf,
  restoreSkeleton,
  type Skeleton,
  sweepOwned,
} from '../../src/netlink/nft/skeleton.ts';
import { deleteSet, type NftSet } from '../../src/netlink/nft/table.ts';
import { NETLINK_NETFILTER, NetlinkSocket } from '../../src/netlink/socket.ts';
import { askOn, Tables } from '../../src/netlink/tables.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { useLabs } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

const table = { family: 'inet', name: 'catena_test' } as const;
const PORTS: NftSet = { table, name: 'ports', key: ['ifname'] };
const CLAIMS: NftSet = { table, name: 'claims', key: ['ifname', 'inet_service'], data: ['ifname'] };
const MORE: NftSet = { ...CLAIMS, name: 'more' };
const TALLY: NftSet = { table, name: 'tally', key: ['ifname'], data: ['mark'] };
const SKELETON: Skeleton = {
  table,
  comment: 'catena: a test',
  sets: [PORTS, CLAIMS, MORE, TALLY],
  chains: [
    {
      name: 'forward',
      base: { type: 'filter', hook: 'forward', priority: 0 },
      rules: ['oifname @ports drop'],
    },
  ],
};
const DORMANT = 'add table inet catena_test { flags dormant; }';
const entryOf = (port: string, comment: string): Entry => ({ set: PORTS, element: { key: [port], comment } });

describeRoot(
  'a table of ours',
  () => {
    const createLab = useLabs();
    const sockets: NetlinkSocket[] = [];

    // A namespace lives as long as a socket in it.
    afterAll(() => {
      for (const socket of sockets.splice(0)) socket.close();
    });

    async function open() {
      const lab = await createLab();
      const netns = openNetns(lab.host.path);
      const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
      closeNetns(netns);
      sockets.push(socket);
      const add = (...entries: Entry[]) => changeOwned(socket, [SKELETON], () => addEntries(entries));
      const problems = (...entries: Entry[]) => findOwnedProblems(socket, [SKELETON], entries);
      return { lab, socket, add, problems };
    }

    test('is created by the first change, and then complete', async () => {
      const { socket, add, problems } = await open();
      expect(problems()).toContain('table "inet catena_test" is missing');
      changeOwned(socket, [SKELETON], () => []);
      expect(problems()).toEqual([]);
      add(entryOf('eth0', 'a'));
      expect(problems(entryOf('eth0', 'a'))).toEqual([]);
    });

    test.each([
      ['flush chain inet catena_test forward', 'rules of chain "forward" are not ours'],
      ['add rule inet catena_test forward accept', 'rules of chain "forward" are not ours'],
      ['delete table inet catena_test', 'table "inet catena_test" is missing'],
      ['delete set inet catena_test tally', '"tally" is missing'],
    ])('is repaired by a change after "nft %s"', async (tamper, problem) => {
      const { lab, socket, add, problems } = await open();
      add(entryOf('eth0', 'a'));
      await lab.run(lab.host, ['nft', ...tamper.split(' ')]);
      expect(problems()).toContain(problem);
      changeOwned(socket, [SKELETON], () => [
        ...addEntries([entryOf('eth0', 'a')]),
        ...recount(socket, { set: TALLY, key: ['eth0'] }, { come: 1, went: 0 }, () => 0),
      ]);
      expect(problems(entryOf('eth0', 'a'))).toEqual([]);
    });

    test.each([
      ['rules of chain "forward" are not ours', 'replace rule inet catena_test forward handle HANDLE accept'],
      [
        'chain "forward" drops what none of its rules accepts',
        'chain inet catena_test forward { policy drop; }',
      ],
      ['table "inet catena_test" is dormant: none of its rules applies', DORMANT],
    ])('as many rules, but %s: a repair writes them again', async (problem, tamper) => {
      const { lab, socket, add, problems } = await open();
      add(entryOf('eth0', 'a'));
      const list = ['nft', '-a', 'list', 'chain', 'inet', 'catena_test', 'forward'];
      const [, handle = ''] = /drop # handle (\d+)/.exec((await lab.run(lab.host, list)).stdout) ?? [];
      const stdin = tamper.replace('HANDLE', handle);
      expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0 });
      expect(problems(entryOf('eth0', 'a'))).toEqual([problem]);
      restoreSkeleton(socket, SKELETON);
      expect(problems(entryOf('eth0', 'a'))).toEqual([]);
    });

    test('a dormant table without its rules works again after a change', async () => {
      const { lab, socket, add, problems } = await open();
      add(entryOf('eth0', 'a'));
      const stdin = `${DORMANT}\nflush table inet catena_test`;
      expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin })).toMatchObject({ exitCode: 0 });
      add(entryOf('eth1', 'b'));
      expect(problems(entryOf('eth0', 'a'))).toEqual([]);
      const kept = new Tables(askOn({ route: socket, netfilter: socket })).filter;
      expect(kept.map(({ table: { name } }) => name)).toEqual(['catena_test']);
      expect(await lab.run(lab.host, ['nft', '-f', '-'], { stdin: DORMANT })).toMatchObject({ exitCode: 0 });
      expect(new Tables(askOn({ route: socket, netfilter: socket })).filter).toEqual([]);
    });

    test('names elements that are missing, of other owners, or different', async () => {
      const { add, problems } = await open();
      const claim = (port: string): Entry => ({
        set: CLAIMS,
        element: { key: ['a', 0], data: [port], comment: 'a' },
      });
      add(entryOf('eth0', 'a'), { set: PORTS, element: { key: ['eth1'] } }, claim('eth0'));
      expect(
        problems(entryOf('eth0', 'b'), entryOf('eth1', 'b'), entryOf('eth2', 'b'), claim('eth2')),
      ).toEqual([
        '{ eth0 } of "ports" belongs to "a"',
        '{ eth1 } of "ports" has no owner',
        '{ eth2 } of "ports" is missing',
        '{ a . 0 } of "claims" leads elsewhere',
      ]);
    });

    test('finds and sweeps elements by owner', async () => {
      const { socket, add } = await open();
      const entries = [entryOf('eth0', 'a'), entryOf('eth1', 'b'), entryOf('eth2', 'a')];
      add(...entries, { set: PORTS, element: { key: ['eth3'] } });
      expect(findOwned(socket, entries.map(placeOf), 'a').map(({ key }) => key[0])).toEqual(['eth0', 'eth2']);
      expect(listOwned(socket, [PORTS], owner => owner === 'b')).toEqual([entryOf('eth1', 'b')]);
      sweepOwned(socket, [PORTS], owner => owner === 'a');
      expect(listElements(socket, PORTS).map(({ key }) => key[0])).toEqual(
        expect.arrayContaining(['eth1', 'eth3']),
      );
      expect(findElement(socket, PORTS, ['eth0'])).toBeUndefined();
    });

    test.each([0, 1, 2, 3, 8, 100])('finds %d numbered elements, as far as they have no gap', async count => {
      const { socket, add } = await open();
      const numbered = (from: number, comment: string) => ({
        set: CLAIMS,
        element: { key: ['a', from], data: [`eth${from}`], comment },
      });
      const own = Array.from({ length: count }, (_, i) => numbered(i, 'a'));
      add(...own, numbered(count, 'b'), numbered(count + 1, 'a'));
      const found = findNumbered(socket, [MORE, CLAIMS], { handle: 'a', note: 'a' });
      expect(found.map(one => one.length)).toEqual([0, count]);
      expect(found[1]).toEqual(own.map(({ element }) => element));
    });

    test('keeps what is shared while it is counted', async () => {
      const { socket, add } = await open();
      add();
      const place = { set: TALLY, key: ['br0'] };
      const shared = { set: PORTS, element: { key: ['br0'] } };
      let there = 0;
      const count = (come: number, went: number) => {
        commit(
          socket,
          recount(socket, place, { come, went }, () => there, shared),
        );
        return [findElement(socket, TALLY, ['br0'])?.data, findElement(socket, PORTS, ['br0']) !== undefined];
      };
      expect(count(2, 0)).toEqual([[2], true]);
      expect(count(1, 1)).toEqual([[2], true]);
      expect(count(0, 1)).toEqual([[1], true]);
      expect(count(0, 1)).toEqual([undefined, false]);
      expect(count(0, 1)).toEqual([undefined, false]);
      expect(count(1, 3)).toEqual([[1], true]);
      // Another program deletes the count, after more have come.
      there = 3;
      const lose = () => commit(socket, deleteElements(TALLY, [['br0']]));
      lose();
      expect(count(0, 1)).toEqual([[2], true]);
      lose();
      expect(count(1, 0)).toEqual([[4], true]);
    });

    test('a set that no rule mentions is created again when a change needs it', async () => {
      const { socket, add } = await open();
      add();
      commit(socket, [deleteSet(CLAIMS)]);
      add({ set: CLAIMS, element: { key: ['a', 0], data: ['eth0'], comment: 'a' } });
      expect(findElement(socket, CLAIMS, ['a', 0])?.comment).toBe('a');
    });
  },
  requires('nft'),
);
