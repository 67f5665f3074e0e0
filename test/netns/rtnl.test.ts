// Does a real kernel take what we send, and does it then show what we meant?
import { describe, expect, spyOn, test } from 'bun:test';
import { checkRoutes, repairRoutes } from '../../src/attach/container.ts';
import { parseCidr, parseIp, renderIp } from '../../src/net/ip.ts';
import { requireLinkChanges, requireLinkKind, requireQdiscKind } from '../../src/netlink/rtnl/kinds.ts';
import {
  createLink,
  findLink,
  getLink,
  listLinks,
  makeLink,
  removeLink,
  removeLinks,
} from '../../src/netlink/rtnl/link.ts';
import { listPermanentNeighbours } from '../../src/netlink/rtnl/neighbour.ts';
import { findWay, listRefusingRoutes, listRoutes } from '../../src/netlink/rtnl/route.ts';
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

describeRoot('addresses and routes', () => {
  /** Two devices with a subnet of each family, and the default routes of this family. */
  const makeDevices = async (lab: Lab, host: NetlinkSocket, family: 4 | 6, ways: readonly string[]) => {
    const links = [];
    for (const [i, name] of ['one', 'two'].entries()) {
      createLink(host, { name, kind: 'veth', peer: { name: `${name}p` } });
      for (const device of [name, `${name}p`]) await lab.ip(lab.host, 'link', 'set', device, 'up');
      await lab.ip(lab.host, 'addr', 'add', `10.1.${i}.2/24`, 'dev', name);
      await lab.ip(lab.host, 'addr', 'add', `fd0${i}::2/64`, 'dev', name, 'nodad');
      links.push(getLink(host, name));
    }
    for (const way of ways) await lab.ip(lab.host, `-${family}`, 'route', 'append', ...way.split(' '));
    const [one, two] = links;
    if (!one || !two) throw new Error('There are no devices');
    return [one, two] as const;
  };
  const planned = (...gateways: readonly string[]) =>
    gateways.map(text => ({
      dst: parseCidr(text.includes(':') ? '::/0' : '0.0.0.0/0'),
      gateway: parseIp(text),
    }));
  const waysOf = async (lab: Lab, family: 4 | 6): Promise<string[]> => {
    const routes = await lab.ip(lab.host, `-${family}`, 'route', 'show', 'default');
    const ways = routes.flatMap(({ dev, gateway, nexthops = [{ dev, gateway }] }) => nexthops);
    return ways.map((way: Row) => `${way.dev} ${way.gateway}`).sort();
  };

  for (const isFirst of [true, false]) {
    test(`repairRoutes() corrects the ${isFirst ? 'first' : 'second'} way of a route by two devices`, async () => {
      await withSocket(async (lab, host) => {
        const [right, wrong] = ['default via fd00::1 dev one', 'default via fd01::9 dev two'];
        const [one, two] = await makeDevices(lab, host, 6, isFirst ? [wrong, right] : [right, wrong]);
        expect(() => checkRoutes(host, two, planned('fd00::1'))).toThrow('via fd00::1');
        repairRoutes(host, two, planned('fd01::1'));
        expect(await waysOf(lab, 6)).toEqual(['one fd00::1', 'two fd01::1']);
        repairRoutes(host, one, planned('fd00::1', 'fd00::7'));
        expect(await waysOf(lab, 6)).toEqual(['one fd00::1', 'one fd00::7', 'two fd01::1']);
      });
    });
  }

  for (const family of [4, 6] as const) {
    test(`repairRoutes() puts one of several gateways of IPv${family} right`, async () => {
      await withSocket(async (lab, host) => {
        const [net, dev] = [family === 4 ? '10.1.0.' : 'fd00::', ['dev', 'one']];
        const wanted = planned(`${net}1`, `${net}3`);
        const isRight = async () => expect(await waysOf(lab, family)).toEqual([`one ${net}1`, `one ${net}3`]);
        const [one] = await makeDevices(lab, host, family, []);
        const ip = (...words: string[]) => lab.ip(lab.host, `-${family}`, 'route', ...words);
        repairRoutes(host, one, wanted);
        await isRight();
        await ip(
          'replace',
          'default',
          'nexthop',
          'via',
          `${net}1`,
          ...dev,
          'nexthop',
          'via',
          `${net}9`,
          ...dev,
        );
        repairRoutes(host, one, wanted);
        await isRight();
        await ip('replace', 'default', 'via', `${net}1`, ...dev);
        repairRoutes(host, one, wanted);
        await isRight();
      });
    });
  }

  test("checkRoutes() hears nothing of other devices' routes, and listRoutes() finds none of a device that is gone", async () => {
    await withSocket(async (lab, host) => {
      const [one, two] = await makeDevices(lab, host, 4, ['default via 10.1.0.1 dev one']);
      await lab.batch(
        lab.host,
        ...Array.from({ length: 250 }, (_, i) => `route add 10.9.${i}.0/24 dev ${two.name}`),
        'route add blackhole 10.7.0.0/24',
      );
      const heard = spyOn(host, 'dump');
      checkRoutes(host, one, planned('10.1.0.1'));
      expect(listRefusingRoutes(host)).toMatchObject([{ kind: 'blackhole', dst: parseCidr('10.7.0.0/24') }]);
      const messages = heard.mock.results.flatMap(({ value }) => value as Uint8Array[]);
      expect(messages.length).toBeLessThan(50);
      expect(listRoutes(host, { oif: 9999 })).toEqual([]);
    });
  });

  test('findWay() finds a gateway of the other family', async () => {
    await withSocket(async (lab, host) => {
      const ways = ['10.9.0.0/24 via inet6 fd00::1 dev one'];
      const [one] = await makeDevices(lab, host, 4, ways);
      expect(findWay(host, parseIp('10.9.0.7'))).toMatchObject({
        oif: one.index,
        gateway: parseIp('fd00::1'),
      });
    });
  });
});

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

  test('requireLinkKind() and makeLink() name the module of a kind that the kernel lacks', async () => {
    await withSocket(async (_lab, host) => {
      const why =
        'operation not supported (EOPNOTSUPP), kernel says "Unknown device type"; this kernel needs its module: modprobe rtnl-link-nonesuch';
      const kind = 'nonesuch' as 'ifb';
      expect(() => requireLinkKind(host, kind)).toThrow(`Cannot use devices of kind nonesuch: ${why}`);
      expect(() => makeLink(host, { name: 'x0', kind })).toThrow(
        `Cannot create link "x0" of kind nonesuch: ${why}`,
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
