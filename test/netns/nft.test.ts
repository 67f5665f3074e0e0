// Does the kernel take our nf_tables changes for what nft says they are?

import { afterAll, describe, expect, test } from 'bun:test';
import { SKELETON as FIREWALL, BRIDGE_SKELETON as FIREWALL_BRIDGE } from '../../plugins/firewall/plan.ts';
import { planSkeleton as portmapSkeleton } from '../../plugins/portmap/sets.ts';
import { planSkeleton as masqueradeSkeleton } from '../../src/attach/masquerade.ts';
import { parseCidr, parseIp } from '../../src/net/ip.ts';
import { addElements, deleteElements, listElements } from '../../src/netlink/nft/element.ts';
import { decide, goto, NF_DROP } from '../../src/netlink/nft/expr.ts';
import { commit, commitAfterReading, tryOut } from '../../src/netlink/nft/message.ts';
import { type Skeleton, skeletonChanges } from '../../src/netlink/nft/skeleton.ts';
import {
  addChain,
  addRule,
  addSet,
  addTable,
  deleteChain,
  deleteRule,
  deleteSet,
  deleteTable,
  flushChain,
  hasTable,
  listChains,
  listRules,
  listSets,
  type NftSet,
} from '../../src/netlink/nft/table.ts';
import { isNetlinkError, NETLINK_NETFILTER, NetlinkSocket } from '../../src/netlink/socket.ts';
import { Errno } from '../../src/sys/errno.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { type Lab, type Row, useLabs } from '../helpers/netns.ts';
import { describeRoot, requires } from '../helpers/skip.ts';

const table = { family: 'inet', name: 'catena_test' } as const;
const target = ['ipv4_addr', 'inet_service'] as const;
const ports = { table, name: 'ports', key: ['inet_proto', 'inet_service'], data: target } as const;
const names = { table, name: 'names', key: ['ifname'] } as const;
const marks = { table, name: 'marks', key: ['mark'], data: ['inet_service'] } as const;
const verdicts = { table, name: 'verdicts', key: ['ipv4_addr'], data: 'verdict' } as const;
const pairs = { table, name: 'pairs', key: ['ipv6_addr', 'ipv6_addr'] } as const;
const ALL: readonly NftSet[] = [ports, names, marks, verdicts, pairs];
const pod = parseIp('10.9.0.2');

describeRoot(
  'nf_tables',
  () => {
    const createLab = useLabs();

    const sockets: NetlinkSocket[] = [];

    // A namespace lives as long as a socket in it; tests beside each other share the list.
    afterAll(() => {
      for (const socket of sockets.splice(0)) socket.close();
    });

    async function open(): Promise<{ lab: Lab; socket: NetlinkSocket }> {
      const lab = await createLab();
      const netns = openNetns(lab.host.path);
      const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_NETFILTER));
      closeNetns(netns);
      sockets.push(socket);
      return { lab, socket };
    }

    test('deleteElements() takes out, and thousands fit a transaction and a listing', async () => {
      const { lab, socket } = await open();
      commit(socket, [addTable(table), addSet(ports)]);
      const many = Array.from({ length: 3000 }, (_, i) => ({ key: [6, i + 1], data: [pod, i + 1] }));
      commit(socket, addElements(ports, many));
      expect(listElements(socket, ports)).toHaveLength(3000);
      commit(
        socket,
        deleteElements(
          ports,
          many.slice(1).map(({ key }) => key),
        ),
      );
      const [map] = (await list(lab)).flatMap(row => row.map ?? []);
      expect(map.elem).toEqual([[{ concat: ['tcp', 1] }, { concat: ['10.9.0.2', 1] }]]);
    });

    test.each<[string, Skeleton]>([
      ['portmap', portmapSkeleton({ pods: ['10.9.0.2/24', 'fd00::2/64'].map(parseCidr), conditions: [] })],
      ['firewall', FIREWALL],
      ['firewall within bridges', FIREWALL_BRIDGE],
      ['masquerading', masqueradeSkeleton(['10.9.0.2/24', 'fd00::2/64'].map(parseCidr))],
    ])('nft prints the rules of %s as they are written', async (_what, skeleton) => {
      const { lab, socket } = await open();
      commit(socket, skeletonChanges(skeleton));
      const text = (await listText(lab)).replaceAll(/"| comment ".*"/g, '');
      for (const words of skeleton.chains.flatMap(({ rules = [] }) => rules))
        expect(text).toContain(`\t${words.replace('\0*', '')}\n`);
    });

    test('flushChain(), deleteRule(), deleteChain(), deleteSet() and deleteTable() take away', async () => {
      const { lab, socket } = await open();
      const drop = [decide({ code: NF_DROP })];
      commit(socket, [
        addTable(table),
        addSet(names),
        addChain(table, 'a'),
        addChain(table, 'b'),
        ...['a', 'a', 'b'].map(chain => addRule(table, chain, drop)),
      ]);
      const [first] = listRules(socket, table);
      commit(socket, [
        deleteRule(table, 'a', first?.handle ?? 0n),
        flushChain(table, 'b'),
        deleteChain(table, 'b'),
      ]);
      commit(socket, [deleteSet(names)]);
      const listed = await list(lab);
      expect(listed.map(row => Object.keys(row)[0])).toEqual(['table', 'chain', 'rule']);
      commit(socket, [deleteTable(table)]);
      expect(await lab.nft(lab.host, 'list', 'ruleset')).toEqual([]);
      expect(hasTable(socket, table)).toBe(false);
      expect([listChains(socket, table), listSets(socket, table), listElements(socket, names)]).toEqual([
        [],
        [],
        [],
      ]);
    });

    describe('commit()', () => {
      test('applies all or nothing, and names the change that failed', async () => {
        const { lab, socket } = await open();
        commit(socket, [addTable(table), addSet(names)]);
        const changes = [
          ...addElements(names, [{ key: ['eth0'] }]),
          ...deleteElements(names, [['gone']]),
          ...addElements(names, [{ key: ['eth1'] }]),
        ];
        const thrown = caught(() => commit(socket, changes));
        expect(isNetlinkError(thrown, Errno.ENOENT)).toBe(true);
        expect(String(thrown)).toContain(
          'Cannot delete { gone } from set "names" of table "inet catena_test"',
        );
        expect(await elementsOfNames(lab)).toBeUndefined();
        // The socket is still good: nothing of the refused transaction is left unread.
        commit(socket, addElements(names, [{ key: ['eth2'] }]));
        expect(await elementsOfNames(lab)).toEqual(['eth2']);
      });

      test('says EEXIST for what is there with other data', async () => {
        const { socket } = await open();
        commit(socket, [addTable(table), addSet(ports)]);
        const add = (port: number) =>
          caught(() => commit(socket, addElements(ports, [{ key: [6, 80], data: [pod, port] }])));
        expect(add(80)).toBeUndefined();
        expect(add(80)).toBeUndefined();
        expect(isNetlinkError(add(81), Errno.EEXIST, Errno.EBUSY)).toBe(true);
      });

      test('says ENOENT when table, set or chain is missing', async () => {
        const { socket } = await open();
        const add = () => commit(socket, addElements(verdicts, [{ key: [pod], data: goto('sub') }]));
        for (const missing of [addTable(table), addSet(verdicts), addChain(table, 'sub')]) {
          expect(isNetlinkError(caught(add), Errno.ENOENT)).toBe(true);
          commit(socket, [missing]);
        }
        expect(caught(add)).toBeUndefined();
      });
    });

    describe('commitAfterReading()', () => {
      test('decides again when the rule set changed in between', async () => {
        const { lab, socket } = await open();
        commit(socket, [addTable(table), addSet(names)]);
        let decisions = 0;
        commitAfterReading(socket, () => {
          decisions += 1;
          if (decisions < 3) commit(socket, addElements(names, [{ key: [`other${decisions}`] }]));
          return addElements(names, [{ key: [`seen${listElements(socket, names).length}`] }]);
        });
        expect(decisions).toBe(3);
        expect((await elementsOfNames(lab))?.sort()).toEqual(['other1', 'other2', 'seen2']);
      });

      test('sends nothing when there is nothing to change', async () => {
        const { lab, socket } = await open();
        commitAfterReading(socket, () => []);
        expect(await lab.nft(lab.host, 'list', 'ruleset')).toEqual([]);
      });
    });

    test('tryOut() asks the kernel and applies nothing', async () => {
      const { lab, socket } = await open();
      tryOut(socket, [addTable(table), ...ALL.map(addSet)]);
      expect(await lab.nft(lab.host, 'list', 'ruleset')).toEqual([]);
      const thrown = caught(() => tryOut(socket, [addSet(names)]));
      expect(isNetlinkError(thrown, Errno.ENOENT)).toBe(true);
    });
  },
  requires('nft'),
);

async function list(lab: Lab): Promise<Row[]> {
  return lab.nft(lab.host, 'list', 'table', table.family, table.name);
}

async function listText(lab: Lab): Promise<string> {
  return (await lab.run(lab.host, ['nft', 'list', 'ruleset'])).stdout;
}

async function elementsOfNames(lab: Lab): Promise<string[] | undefined> {
  return (await list(lab)).find(({ set }) => set?.name === 'names')?.set.elem;
}

function caught(action: () => void): unknown {
  try {
    action();
    return undefined;
  } catch (thrown) {
    return thrown;
  }
}
