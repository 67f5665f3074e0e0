// What becomes of a lease that a visit of the daemon obtains, if the attachment changed while the server was asked?
import { expect, test } from 'bun:test';
import { writeFileSync } from 'node:fs';
import { IPV4_LEASES, type Lease } from '../../plugins/dhcp/lease.ts';
import { collectLeases, keepLease, noteLease, returnLease } from '../../plugins/dhcp/upkeep.ts';
import { forgetGeneration, noteGeneration } from '../../src/attachments/generation.ts';
import { bootId } from '../../src/files/process-stat.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import { bootClock } from '../../src/node/upkeep/note.ts';
import type { Call } from '../../src/plugin/define.ts';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { recordsIn } from '../helpers/dhcp-lab.ts';
import { type Container, directories, type Lab, withHost } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';

const ADDRESS = '10.77.0.9/24';

function leaseSince(since: number): Lease {
  const resolvers = { nameservers: [], search: [] };
  const server = { server: '10.77.0.1', serverMac: '02:00:00:00:00:01' };
  const times = { since, duration: 60, renewAfter: 3, rebindAfter: 50 };
  return { address: ADDRESS, routes: [], ...resolvers, ...server, ...times };
}

type Keeper = ReturnType<Parameters<typeof keepLease<{ lease: Lease; clientId: string }>>[3]>;

/** An attachment with a lease that is due, on which a server's answer is awaited. */
interface Visited {
  readonly lab: Lab;
  readonly container: Container;
  /** Addresses that were released. */
  readonly released: string[];
  /** Lines of the log, after their level. */
  readonly said: string[];
  /** The first plugin of an ADD notes the generation, dhcp its lease. */
  beginAdd(): void;
  noteAgain(state?: object, age?: number): void;
  del(): Promise<void>;
  /** GC that keeps nothing. */
  gc(): Promise<void>;
  /**
   * Visits the attachment.
   * @param first happens before the server grants the same address
   * @param more what else differs from a server that grants it, and from an interface that has all routes
   */
  visit(first?: () => unknown, restarted?: boolean, more?: Partial<Keeper>): Promise<void>;
  /** What the server was asked, and leases that were applied. */
  readonly asked: string[];
}

async function withVisited(body: (visited: Visited) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    const container = await lab.container();
    await lab.batch(
      container,
      'link add eth0 type veth peer name eth1',
      'link set eth0 up',
      `addr add ${ADDRESS} dev eth0`,
    );
    const netns = openNetns(container.path);
    const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
    const released: string[] = [];
    const asked: string[] = [];
    const said: string[] = [];
    const tell = (level: string) => (line: string) => void said.push(`${level} ${line}`);
    const env = { command: 'CHECK', containerId: container.id, netns: container.path, ifname: 'eth0' };
    const environment = { ...directories(lab.tmp), CNI_NETNS: container.path };
    const call = {
      ...{ env, environment, network: 'lan', container: socket, containerNetns: netns, requestText: '{}' },
      log: { debug: tell('debug'), info: tell('info'), warn: tell('warn'), error: tell('error') },
      findContainerNetns: () => netns,
      onFailure: () => undefined,
    } as unknown as Call;
    const attachment = { network: 'lan', containerId: container.id, ifname: 'eth0' };
    const leases: typeof IPV4_LEASES = {
      ...IPV4_LEASES,
      release: async (_, { lease }) => released.push(lease.address) > 0,
    };
    const noteAgain = (more: object = {}, age = 5) => {
      const lease = leaseSince(bootClock() - age);
      noteLease(call, leases, { lease, clientId: '00', ownMtu: 1500, ...more }, bootClock());
    };
    const beginAdd = () =>
      void noteGeneration(`${lab.tmp}/run`, attachment, { renew: true, boot: bootId(environment) });
    try {
      await body({
        ...{ lab, container, released, asked, said, beginAdd, noteAgain },
        async del() {
          forgetGeneration(`${lab.tmp}/run`, attachment);
          await returnLease(call, leases);
        },
        gc: () =>
          collectLeases({ ...call, kept: { has: () => false, isNoted: () => true } } as never, leases),
        visit: (first, restarted = false, more = {}) =>
          keepLease(call, leases, { restarted, timeoutS: 5 }, () => ({
            async ask(question) {
              asked.push(question);
              await first?.();
              return { lease: leaseSince(bootClock()) };
            },
            acquire: async () => leaseSince(bootClock()),
            missing: () => [],
            apply: ({ address }) => void asked.push(`apply ${address}`),
            ...more,
          })),
      });
    } finally {
      socket.close();
      closeNetns(netns);
    }
  });
}

describeRoot('a visit of the daemon for a lease', () => {
  test('releases what was granted after a DEL', async () => {
    await withVisited(async ({ lab, released, beginAdd, noteAgain, del, visit }) => {
      beginAdd();
      noteAgain();
      await visit(del);
      expect(released).toEqual([ADDRESS, ADDRESS]);
      expect(recordsIn(lab)).toEqual([]);
    });
  });

  test.each([
    ['has its lease', true],
    ['has none yet', false],
  ])('releases nothing once a later ADD has begun, which %s', async (_, hasLease) => {
    await withVisited(async ({ lab, released, beginAdd, noteAgain, del, visit }) => {
      beginAdd();
      noteAgain();
      await visit(async () => {
        await del();
        beginAdd();
        if (hasLease) noteAgain();
      });
      expect(released).toEqual([ADDRESS]);
      expect(recordsIn(lab)).toHaveLength(hasLease ? 1 : 0);
    });
  });

  test('asks for no new container when the address that ADD reported is back', async () => {
    await withVisited(async ({ lab, container, said, beginAdd, noteAgain, visit }) => {
      beginAdd();
      noteAgain({ withdrawn: true });
      await lab.batch(container, `addr del ${ADDRESS} dev eth0`);
      await visit();
      expect(said.filter(line => line.startsWith('warn'))).toEqual([]);
    });
  });

  test.each([
    ['asks nothing while it is young', -60, []],
    ['renews it, and leaves the address to ADD', 5, ['renew']],
  ])('of which ADD has not given the interface the address yet %s', async (_, age, expected) => {
    await withVisited(async ({ lab, container, asked, beginAdd, noteAgain, visit }) => {
      beginAdd();
      noteAgain({ unseen: true }, age);
      await lab.batch(container, `addr del ${ADDRESS} dev eth0`);
      await visit(undefined, age < 0);
      expect(asked).toEqual(expected);
      await lab.batch(container, `addr add ${ADDRESS} dev eth0`);
      await visit();
      expect(asked).toEqual([...expected, `apply ${ADDRESS}`]);
    });
  });

  test('confirms one that no daemon has seen since ADD, and gives back what the interface lost', async () => {
    await withVisited(async ({ lab, container, asked, beginAdd, noteAgain, visit }) => {
      beginAdd();
      noteAgain({ unseen: true, lease: { ...leaseSince(bootClock() - 70), duration: 600, renewAfter: 300 } });
      await lab.batch(container, `addr del ${ADDRESS} dev eth0`);
      await visit(undefined, true);
      expect(asked).toEqual(['confirm', `apply ${ADDRESS}`]);
    });
  });

  test('takes the address of one that has ended from the interface before it asks for another', async () => {
    await withVisited(async ({ lab, container, asked, beginAdd, noteAgain, visit }) => {
      beginAdd();
      noteAgain({}, 61);
      await visit();
      expect(asked).toEqual([]);
      const [link] = await lab.ip(container, '-4', 'addr', 'show', 'eth0');
      expect(link?.addr_info ?? []).toEqual([]);
      await visit();
      expect(asked).toEqual([`apply ${ADDRESS}`]);
    });
  });

  test('knows which routes a refused address had not, also if it dies before there is another one', async () => {
    await withVisited(async ({ lab, container, asked, beginAdd, noteAgain, visit }) => {
      beginAdd();
      noteAgain();
      const hasAddress = async () => {
        const [link] = await lab.ip(container, '-4', 'addr', 'show', 'eth0');
        return (link?.addr_info ?? []).length > 0;
      };
      const dies = async () => {
        throw new Error('killed');
      };
      const refused = { ask: async () => 'over' as const, missing: () => ['10.9.0.0/16'], acquire: dies };
      await expect(visit(undefined, false, refused)).rejects.toThrow('killed');
      expect(await hasAddress()).toBe(false);
      // As if it had died before it took the address away.
      await lab.batch(container, `addr add ${ADDRESS} dev eth0`);
      await expect(visit(undefined, true, { acquire: dies })).rejects.toThrow('killed');
      expect(await hasAddress()).toBe(false);
      const apply: Keeper['apply'] = (_, __, without) => void asked.push(`apply without ${without}`);
      await visit(undefined, true, { apply });
      expect(asked).toEqual(['apply without 10.9.0.0/16']);
    });
  });

  test('says that it removes an address whose next lease has ended before the interface had it', async () => {
    await withVisited(async ({ lab, container, said, beginAdd, noteAgain, visit }) => {
      beginAdd();
      noteAgain({ unapplied: leaseSince(bootClock()) }, 3600);
      await visit();
      const [link] = await lab.ip(container, '-4', 'addr', 'show', 'eth0');
      expect(link?.addr_info ?? []).toEqual([]);
      expect(said).toEqual([`warn Removed ${ADDRESS} from "eth0": the lease that followed has expired`]);
    });
  });

  test('takes a refused address away, also if that cannot be noted', async () => {
    await withVisited(async ({ lab, container, beginAdd, noteAgain, visit }) => {
      beginAdd();
      noteAgain();
      const unwritable = {
        toJSON() {
          throw new Error('the disk is full');
        },
      };
      const refused = { ask: async () => 'over' as const, missing: () => [unwritable as never] };
      await expect(visit(undefined, false, refused)).rejects.toThrow('the disk is full');
      const [link] = await lab.ip(container, '-4', 'addr', 'show', 'eth0');
      expect(link?.addr_info ?? []).toEqual([]);
    });
  });

  test.each(['del', 'gc'] as const)(
    'a record that is of no lease is not visited again at once, and goes with %s',
    async verb => {
      await withVisited(async visited => {
        const { lab, beginAdd, noteAgain, visit } = visited;
        beginAdd();
        noteAgain();
        const [name = ''] = recordsIn(lab);
        const path = `${lab.tmp}/state/upkeep/dhcp/lan/${name}`;
        const note = await Bun.file(path).json();
        writeFileSync(path, JSON.stringify({ ...note, state: { lease: 'of another version' } }));
        // The daemon waits longer after each failure.
        await expect(visit()).rejects.toThrow('run DEL and ADD');
        await visited[verb]();
        expect(recordsIn(lab)).toEqual([]);
      });
    },
  );
});
