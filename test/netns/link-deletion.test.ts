// Are devices gone when a deletion ends that another process waits for, and does it end in no other case?
import { expect, test } from 'bun:test';
import path from 'node:path';
import { deletionOf } from '../../src/netlink/rtnl/link.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { deleteBy, sendByFront } from '../../src/plugin/delete-devices.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { runOk } from '../helpers/command.ts';
import { findFrontProblem } from '../helpers/front.ts';
import { type Lab, type Namespace, type Row, useLabs } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';

const FRONT = path.join(ROOT, 'dist/bin/catena');

describeRoot(
  'a deletion that another process waits for',
  () => {
    const lab = useLabs();

    test('ends when devices, their peers, addresses and routes are gone, and their names are free', async () => {
      const own = await lab();
      const inside = await own.container();
      const make = async (): Promise<void> => {
        await ip(own.host, 'link', 'add', 'bridge0', 'type', 'bridge');
        for (const name of ['ifb0', 'ifb1']) await ip(own.host, 'link', 'add', name, 'up', 'type', 'ifb');
        await ip(own.host, 'link', 'add', 'port0', 'type', 'veth', 'peer', 'eth0', 'netns', inside.name);
        await ip(own.host, 'link', 'set', 'port0', 'master', 'bridge0', 'up');
        await ip(inside, 'link', 'set', 'eth0', 'up');
        await ip(inside, 'address', 'add', '10.1.0.2/24', 'dev', 'eth0');
      };
      for (let round = 0; round < 3; round++) {
        await make();
        const indexes = await indexesOf(own, 'ifb0', 'ifb1', 'port0');
        expect(perform(own.host, indexes, byFront)).toBe(true);
        expect(await namesIn(own, own.host)).toEqual(['lo', 'bridge0']);
        expect(await namesIn(own, inside)).toEqual(['lo']);
        expect(await own.ip(inside, 'route', 'show', 'table', 'all')).toEqual([]);
        await ip(own.host, 'link', 'delete', 'bridge0');
      }
    });

    test('ends also when one of the devices is gone before', async () => {
      const own = await lab();
      await ip(own.host, 'link', 'add', 'ifb0', 'up', 'type', 'ifb');
      const indexes = await indexesOf(own, 'ifb0');
      expect(perform(own.host, [...indexes, 4_711], byFront)).toBe(true);
      expect(await namesIn(own, own.host)).toEqual(['lo']);
    });

    test('throws the refusal of the kernel', async () => {
      const own = await lab();
      expect(() => perform(own.host, [1], byFront)).toThrow('Cannot delete link with index 1: ');
      expect(await namesIn(own, own.host)).toEqual(['lo']);
    });

    test('does not end when a port leaves its bridge, or another device is deleted, and says so', async () => {
      const own = await lab();
      await ip(own.host, 'link', 'add', 'bridge0', 'type', 'bridge');
      for (const name of ['ifb0', 'ifb1'])
        await ip(own.host, 'link', 'add', name, 'master', 'bridge0', 'up', 'type', 'ifb');
      const sendOthers = (): void => {
        for (const words of ['set ifb0 nomaster', 'delete ifb1'])
          Bun.spawnSync(['ip', '-n', own.host.name, 'link', ...words.split(' ')]);
      };
      expect(perform(own.host, await indexesOf(own, 'ifb0'), sendOthers)).toBe(false);
      expect(await namesIn(own, own.host)).toEqual(['lo', 'bridge0', 'ifb0']);
    });
  },
  requires('ip'),
  findFrontProblem(),
);

const byFront = (fd: number, bytes: Uint8Array): void => sendByFront(FRONT, fd, bytes);

function perform(
  { path: at }: Namespace,
  indexes: readonly number[],
  send: (fd: number, bytes: Uint8Array) => void,
): boolean {
  const netns = openNetns(at);
  const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
  try {
    const request = deletionOf(socket, indexes);
    if (request === undefined) throw new Error('there are devices to delete');
    return deleteBy(request, indexes, send, open => inNetns(netns, open));
  } finally {
    socket.close();
    closeNetns(netns);
  }
}

async function ip({ name }: Namespace, ...words: string[]): Promise<void> {
  await runOk(['ip', '-n', name, ...words]);
}

async function namesIn(lab: Lab, namespace: Namespace): Promise<string[]> {
  return (await lab.ip<Row[]>(namespace, 'link', 'show')).map(({ ifname }) => ifname);
}

async function indexesOf(lab: Lab, ...names: string[]): Promise<number[]> {
  const links = await lab.ip<Row[]>(lab.host, 'link', 'show');
  return names.map(name => links.find(({ ifname }) => ifname === name)?.ifindex);
}
