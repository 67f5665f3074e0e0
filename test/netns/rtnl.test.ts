// Does a real kernel take what we send, and does it then show what we meant?
import { describe, expect, test } from 'bun:test';
import { renderIp } from '../../src/net/ip.ts';
import { requireLinkChanges, requireLinkKind, requireQdiscKind } from '../../src/netlink/rtnl/kinds.ts';
import {
  createLink,
  findLink,
  getLink,
  listLinks,
  removeLink,
  removeLinks,
} from '../../src/netlink/rtnl/link.ts';
import { listPermanentNeighbours } from '../../src/netlink/rtnl/neighbour.ts';
import { NETLINK_ROUTE, NetlinkSocket } from '../../src/netlink/socket.ts';
import {
  closeNetns,
  enter,
  inNetns,
  type Netns,
  openNetns,
  openOwnNetns,
  ownNetns,
  sameNetns,
} from '../../src/sys/netns.ts';
import { readSysctl, writeSysctl } from '../../src/sys/sysctl.ts';
import { type Lab, type Namespace, type Row, withHost } from '../helpers/netns.ts';
import { describeRoot, requiresLinkKind } from '../helpers/skip.ts';

/** A socket in the fake host, and another one wherever the test needs it. */
async function withSocket(
  body: (lab: Lab, host: NetlinkSocket, open: (ns: Namespace) => NetlinkSocket) => Promise<void>,
): Promise<void> {
  await withHost(async lab => {
    const sockets: NetlinkSocket[] = [];
    const open = (ns: Namespace): NetlinkSocket => {
      const netns = openNetns(ns.path);
      const socket = inNetns(netns, () => new NetlinkSocket(NETLINK_ROUTE));
      closeNetns(netns);
      sockets.push(socket);
      return socket;
    };
    try {
      await body(lab, open(lab.host), open);
    } finally {
      for (const socket of sockets) socket.close();
    }
  });
}

async function linkOf(lab: Lab, name: string, ns: Namespace = lab.host): Promise<Row | undefined> {
  return (await lab.ip(ns, 'link', 'show', 'dev', name))[0];
}

describeRoot('links', () => {
  test('removeLinks() removes all of them, some of which are gone, and nothing else', async () => {
    await withSocket(async (lab, host) => {
      const make = (name: string) => {
        createLink(host, { name, kind: 'veth', peer: { name: `${name}p` } });
        return getLink(host, name).index;
      };
      const [kept, first, gone, second] = ['kept', 'first', 'gone', 'second'].map(make);
      removeLink(host, 'gone');
      removeLinks(host, [first ?? 0, gone ?? 0, second ?? 0]);
      const left = await lab.ip(lab.host, 'link', 'show', 'type', 'veth');
      expect(left.map(({ ifname }) => ifname).sort()).toEqual(['kept', 'keptp']);
      expect(left.map(({ group }) => group)).toEqual(['default', 'default']);
      removeLinks(host, [kept ?? 0]);
      removeLinks(host, [kept ?? 0, first ?? 0]);
      removeLinks(host, []);
      expect(await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).toEqual([]);
    });
  });

  test('listLinks() reads a table that does not fit one buffer', async () => {
    await withSocket(async (lab, host) => {
      for (let i = 0; i < 150; i++)
        createLink(host, { name: `v${i}`, kind: 'veth', peer: { name: `w${i}` } });
      expect(listLinks(host)).toHaveLength(301);
      expect(await lab.ip(lab.host, 'link')).toHaveLength(301);
    });
  });
});

describeRoot('addresses and routes', () => {});

describeRoot('qdiscs and filters', () => {}, requiresLinkKind('ifb'));

describeRoot('kernel support', () => {
  test('requireLinkKind(), requireQdiscKind() and requireLinkChanges() leave no trace', async () => {
    await withSocket(async (lab, host) => {
      const before = await lab.dump(lab.host);
      for (const kind of ['veth', 'bridge'] as const) requireLinkKind(host, kind);
      requireQdiscKind(host, 'tbf');
      requireQdiscKind(host, 'htb');
      requireLinkChanges(host);
      expect(await lab.dump(lab.host)).toEqual(before);
    });
  });

  test('requireLinkKind() throws for a kind that no kernel has', async () => {
    await withSocket(async (_lab, host) => {
      expect(() => requireLinkKind(host, 'nonesuch' as 'ifb')).toThrow(
        'Cannot use devices of kind nonesuch: operation not supported (EOPNOTSUPP)',
      );
    });
  });
});

describe('namespaces', () => {
  describeRoot('inNetns()', () => {
    test('comes back, also when the visit fails', async () => {
      await withHost(async lab => {
        const [own, there] = [openOwnNetns(), openNetns(lab.host.path)];
        const seen = inNetns(there, () => {
          const inside = openOwnNetns();
          const same = sameNetns(inside, there);
          closeNetns(inside);
          return same;
        });
        expect(seen).toBe(true);
        expect(() =>
          inNetns(there, () => {
            throw new Error('on purpose');
          }),
        ).toThrow('on purpose');
        const after = openOwnNetns();
        expect(sameNetns(after, own)).toBe(true);
        for (const netns of [own, there, after]) closeNetns(netns);
      });
    });

    test('comes back from a visit within a visit, and lives where it was moved to', async () => {
      await withHost(async lab => {
        const [own, there] = [openOwnNetns(), openNetns(lab.host.path)];
        const inner = openNetns((await lab.container()).path);
        const isAt = (netns: Netns) => {
          const inside = openOwnNetns();
          closeNetns(inside);
          return sameNetns(inside, netns) && sameNetns(ownNetns(), netns);
        };
        const seen = inNetns(there, () => [isAt(there), inNetns(inner, () => isAt(inner)), isAt(there)]);
        enter(there);
        const moved = [isAt(there), inNetns(inner, () => isAt(inner)), isAt(there)];
        enter(own);
        expect([...seen, ...moved, isAt(own)]).toEqual(Array(7).fill(true));
        for (const netns of [own, there, inner]) closeNetns(netns);
      });
    });

    test('readSysctl() reads long values whole', async () => {
      await withHost(async lab => {
        const there = openNetns(lab.host.path);
        const path = 'net/ipv4/ip_local_reserved_ports';
        const ports = Array.from({ length: 1500 }, (_, i) => 20_000 + 2 * i).join(',');
        expect(
          inNetns(there, () => {
            writeSysctl(path, ports);
            return readSysctl(path);
          }),
        ).toBe(ports);
        closeNetns(there);
      });
    });

    test('leaves sockets behind that belong to the namespace', async () => {
      await withSocket(async (lab, host, open) => {
        const container = await lab.container();
        createLink(open(container), { name: 'inside', kind: 'bridge' });
        expect(findLink(host, 'inside')).toBeUndefined();
        expect(findLink(host, 'longer-than-15-bytes')).toBeUndefined();
        expect(await linkOf(lab, 'inside', container)).toMatchObject({ ifname: 'inside' });
      });
    });
  });
});

describeRoot('neighbours', () => {
  test('listPermanentNeighbours() lists the configured ones of both families', async () => {
    await withSocket(async (lab, host) => {
      createLink(host, { name: 'br0', kind: 'bridge', up: true });
      const { index } = getLink(host, 'br0');
      const mac = '0a:00:00:00:00:01';
      for (const [ip, state] of [
        ['10.1.0.2', 'permanent'],
        ['fd00::2', 'permanent'],
        ['10.1.0.3', 'stale'],
      ] as const) {
        const argv = ['ip', 'neigh', 'add', ip, 'lladdr', mac, 'dev', 'br0', 'nud', state];
        expect((await lab.run(lab.host, argv)).exitCode).toBe(0);
      }
      const found = listPermanentNeighbours(host).filter(one => one.index === index && one.mac === mac);
      expect(found.map(({ ip }) => renderIp(ip)).sort()).toEqual(['10.1.0.2', 'fd00::2']);
    });
  });
});
