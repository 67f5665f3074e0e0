// Does a real kernel take what we send, and does it then show what we meant?
import { describe, expect, test } from 'bun:test';
import { parseCidr } from '../../src/net/cidr.ts';
import { parseIp, renderIp } from '../../src/net/ip.ts';
import { addAddress, listAddresses, removeAddress } from '../../src/netlink/rtnl/addr.ts';
import { htbClassRequest, listClasses } from '../../src/netlink/rtnl/class.ts';
import {
  listFilters,
  listIngressFilters,
  redirectRequest,
  removeIngressFilters,
  subnetFilterRequest,
} from '../../src/netlink/rtnl/filter.ts';
import {
  createLink,
  findLink,
  getLink,
  listLinks,
  removeLink,
  removeLinks,
  setBridgePort,
  setLink,
} from '../../src/netlink/rtnl/link.ts';
import { listPermanentNeighbours } from '../../src/netlink/rtnl/neighbour.ts';
import { netnsIdOf } from '../../src/netlink/rtnl/netns-id.ts';
import {
  bfifoRequest,
  findQdisc,
  htbRequest,
  ingressRequest,
  listQdiscs,
  removeQdisc,
  tbfRequest,
} from '../../src/netlink/rtnl/qdisc.ts';
import { addRoute, listRoutes, removeRoute } from '../../src/netlink/rtnl/route.ts';
import { requireLinkChanges, requireLinkKind, requireQdiscKind } from '../../src/netlink/rtnl/supported.ts';
import { TC_H_INGRESS, TC_H_ROOT, tcHandle } from '../../src/netlink/rtnl/tc/tcmsg.ts';
import { matchSubnet } from '../../src/netlink/rtnl/tc/u32.ts';
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

  test('createLink() makes a pair with both ends where they belong, in one request', async () => {
    await withSocket(async (lab, host, open) => {
      const container = await lab.container();
      const netns = openNetns(container.path);
      const peer = { name: 'eth0', netnsFd: netns.fd, mac: '02:00:00:00:00:02', mtu: 1400 };
      createLink(host, {
        name: 'veth0',
        kind: 'veth',
        mtu: 1400,
        mac: '02:00:00:00:00:01',
        txqlen: 77,
        peer,
      });
      expect(await linkOf(lab, 'veth0')).toMatchObject({
        linkinfo: { info_kind: 'veth' },
        mtu: 1400,
        txqlen: 77,
        address: '02:00:00:00:00:01',
      });
      expect(await linkOf(lab, 'eth0', container)).toMatchObject({ mtu: 1400, address: '02:00:00:00:00:02' });

      const [outer, inner] = [getLink(host, 'veth0'), getLink(open(container), 'eth0')];
      expect([outer.peer, inner.peer]).toEqual([inner.index, outer.index]);
      expect(netnsIdOf(host, netns.fd)).toBe(outer.attrs.linkNetnsId ?? -2);
      closeNetns(netns);
      expect(() => createLink(host, { name: 'veth0', kind: 'bridge' })).toThrow(
        'Cannot create link "veth0" of kind bridge: object exists (EEXIST)',
      );
    });
  });

  test('setLink() changes what is named and nothing else', async () => {
    await withSocket(async (lab, host) => {
      createLink(host, { name: 'br0', kind: 'bridge' });
      createLink(host, { name: 'a', kind: 'veth', peer: { name: 'b' } });
      const { index } = getLink(host, 'a');
      setLink(host, index, { up: true, promisc: true, mtu: 1300, txqlen: 5, mac: '02:00:00:00:00:09' });
      setLink(host, index, { master: getLink(host, 'br0').index, alias: 'a note' });
      const a = await linkOf(lab, 'a');
      expect(a).toMatchObject({
        mtu: 1300,
        txqlen: 5,
        address: '02:00:00:00:00:09',
        master: 'br0',
        ifalias: 'a note',
      });
      expect(a?.flags).toEqual(expect.arrayContaining(['UP', 'PROMISC']));
      setLink(host, index, { promisc: false });
      expect((await linkOf(lab, 'a'))?.flags).toContain('UP');
      expect((await linkOf(lab, 'a'))?.flags).not.toContain('PROMISC');
      setLink(host, index, { master: 0, up: false });
      setLink(host, index, { name: 'c' });
      expect((await linkOf(lab, 'c'))?.master).toBeUndefined();
      expect(findLink(host, 'a')).toBeUndefined();
    });
  });

  test('setBridgePort() sets hairpin and isolation', async () => {
    await withSocket(async (lab, host) => {
      createLink(host, { name: 'br0', kind: 'bridge', up: true });
      const master = getLink(host, 'br0').index;
      createLink(host, { name: 'a', kind: 'veth', master, peer: { name: 'b' } });
      setBridgePort(host, getLink(host, 'a').index, { hairpin: true });
      const port = async () => (await linkOf(lab, 'a'))?.linkinfo.info_slave_data;
      expect(await port()).toMatchObject({ hairpin: true, isolated: false });
      setBridgePort(host, getLink(host, 'a').index, { hairpin: false, isolated: true });
      expect(await port()).toMatchObject({ hairpin: false, isolated: true });
      expect(getLink(host, 'a').attrs.linkinfo?.portData).toMatchObject({ hairpin: 0, isolated: 1 });
    });
  });

  test('removeLink() takes a link away once and is content the second time', async () => {
    await withSocket(async (lab, host) => {
      createLink(host, { name: 'br0', kind: 'bridge' });
      const { index } = getLink(host, 'br0');
      removeLink(host, index);
      removeLink(host, index);
      removeLink(host, 'br0');
      expect((await lab.ip(lab.host, 'link')).map(({ ifname }) => ifname)).toEqual(['lo']);
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
  test('addAddress(), listAddresses() and removeAddress() of both families', async () => {
    await withSocket(async (lab, host) => {
      // Down, or the kernel would add an address of its own.
      createLink(host, { name: 'br0', kind: 'bridge' });
      const { index } = getLink(host, 'br0');
      const [v4, v6] = [parseCidr('10.1.0.1/24'), parseCidr('fd00:1::1/64')];
      addAddress(host, index, v4);
      addAddress(host, index, v6, { nodad: true });
      const [shown] = await lab.ip(lab.host, 'addr', 'show', 'dev', 'br0');
      expect(shown?.addr_info).toMatchObject([
        { local: '10.1.0.1', prefixlen: 24, broadcast: '10.1.0.255', scope: 'global' },
        { local: 'fd00:1::1', prefixlen: 64, nodad: true },
      ]);
      expect(listAddresses(host, index).map(({ cidr }) => cidr)).toEqual([v4, v6]);
      expect(() => addAddress(host, index, v4)).toThrow(
        `Cannot add address 10.1.0.1/24 to link with index ${index}: object exists (EEXIST)`,
      );
      for (const cidr of [v4, v6, v4, v6]) removeAddress(host, index, cidr);
      expect(listAddresses(host, index)).toEqual([]);
      removeAddress(host, 999, v4);
    });
  });

  test('addRoute(), listRoutes() and removeRoute() of both families and any table', async () => {
    await withSocket(async (lab, host) => {
      createLink(host, { name: 'br0', kind: 'bridge', up: true });
      const oif = getLink(host, 'br0').index;
      addAddress(host, oif, parseCidr('10.1.0.1/24'));
      addAddress(host, oif, parseCidr('fd00:1::1/64'), { nodad: true });
      const routes = [
        { dst: parseCidr('0.0.0.0/0'), gateway: parseIp('10.1.0.2'), oif },
        {
          dst: parseCidr('10.2.0.0/16'),
          gateway: parseIp('10.1.0.2'),
          oif,
          priority: 7,
          mtu: 1300,
          advmss: 1200,
        },
        { dst: parseCidr('10.3.0.0/16'), oif, table: 1000, scope: 253 },
        { dst: parseCidr('::/0'), gateway: parseIp('fd00:1::2'), oif },
      ];
      for (const route of routes) addRoute(host, route);
      expect(await lab.ip(lab.host, 'route', 'show', 'table', 'main')).toMatchObject([
        { dst: 'default', gateway: '10.1.0.2', dev: 'br0' },
        { dst: '10.1.0.0/24' },
        { dst: '10.2.0.0/16', metric: 7, metrics: [{ mtu: 1300, advmss: 1200 }] },
      ]);
      expect(await lab.ip(lab.host, 'route', 'show', 'table', '1000')).toMatchObject([
        { dst: '10.3.0.0/16', dev: 'br0', scope: 'link' },
      ]);
      expect(await lab.ip(lab.host, '-6', 'route', 'show', 'default')).toMatchObject([
        { gateway: 'fd00:1::2' },
      ]);
      expect(listRoutes(host)).toEqual(
        expect.arrayContaining(routes.map(route => expect.objectContaining(route))),
      );
      for (const route of [...routes, ...routes]) removeRoute(host, route);
      expect(await lab.ip(lab.host, 'route', 'show', 'table', 'main')).toMatchObject([
        { dst: '10.1.0.0/24' },
      ]);
      expect(await lab.ip(lab.host, '-6', 'route', 'show', 'default')).toEqual([]);
    });
  });
});

describeRoot(
  'qdiscs and filters',
  () => {
    test('tbfRequest() puts a bucket on a device, and another one in its place', async () => {
      await withSocket(async (lab, host) => {
        createLink(host, { name: 'q0', kind: 'ifb', up: true });
        const { index } = getLink(host, 'q0');
        expect(findQdisc(host, index, 'root')).toBeUndefined();
        for (const rateBytes of [125_000, 12_500_000_000]) {
          const tbf = { rateBytes, bufferTicks: 31_250_000, limitBytes: 3_000_000_000 };
          host.request(tbfRequest(index, tbf));
          const [shown] = await lab.tc(lab.host, 'qdisc', 'show', 'dev', 'q0');
          expect(shown).toMatchObject({
            kind: 'tbf',
            handle: '1:',
            root: true,
            options: { rate: rateBytes },
          });
          const found = { index, kind: 'tbf', handle: tcHandle(1, 0), parent: TC_H_ROOT, tbf };
          expect(findQdisc(host, index, 'root')).toEqual(found);
          expect(listQdiscs(host, index)).toEqual([found]);
        }
        const qdisc = { index, handle: tcHandle(1, 0), parent: TC_H_ROOT };
        removeQdisc(host, qdisc);
        removeQdisc(host, qdisc);
        expect(findQdisc(host, index, 'root')).toBeUndefined();
        removeLink(host, index);
        removeQdisc(host, qdisc);
        expect(findQdisc(host, index, 'root')).toBeUndefined();
      });
    });

    test('htbClassRequest() and subnetFilterRequest() make a tree that is read as it was written', async () => {
      await withSocket(async (lab, host) => {
        createLink(host, { name: 'q0', kind: 'ifb', up: true });
        const { index } = getLink(host, 'q0');
        const slow = {
          rateBytes: 125_000,
          ceilBytes: 125_000,
          bufferTicks: 31_250_000,
          quantumBytes: 12_500,
        };
        const fast = { rateBytes: 1e11, ceilBytes: 2e11, bufferTicks: 0xffffffff, quantumBytes: 200_000 };
        const subnets = ['10.0.0.0/8', '10.9.8.7/32', '0.0.0.0/0', 'fd00:db8:abcd:1234:e000::/68', '::/0'];
        const filters = subnets.map(parseCidr).flatMap(subnet =>
          (['source', 'destination'] as const).map(end => {
            return { preference: subnet.ip.family, subnet, end, classid: tcHandle(1, 0x30) };
          }),
        );
        host.requestAll([
          htbRequest(index, 0x30),
          htbClassRequest(index, 1, fast),
          htbClassRequest(index, 0x30, slow),
          bfifoRequest(index, { parent: tcHandle(1, 0x30), handle: tcHandle(0x30, 0), limitBytes: 99_000 }),
          ...filters.map(filter => subnetFilterRequest(index, filter)),
        ]);
        const found = listFilters(host, index, tcHandle(1, 0));
        expect(
          found.map(({ preference, protocol, classid, selector }) => [
            preference,
            protocol,
            classid,
            selector,
          ]),
        ).toEqual(
          filters.map(({ preference, subnet, classid, end }) => [
            preference,
            preference === 4 ? 0x800 : 0x86dd,
            classid,
            matchSubnet(subnet, end),
          ]),
        );
        expect(listClasses(host, index)).toEqual([
          { kind: 'htb', handle: tcHandle(1, 1), parent: TC_H_ROOT, htb: fast },
          { kind: 'htb', handle: tcHandle(1, 0x30), parent: TC_H_ROOT, htb: slow },
        ]);
        expect(findQdisc(host, index, 'root')).toMatchObject({ kind: 'htb', defaultClass: 0x30 });
        expect(findQdisc(host, index, tcHandle(1, 0x30))).toMatchObject({
          kind: 'bfifo',
          limitBytes: 99_000,
        });
        expect(findQdisc(host, index, tcHandle(1, 1))).toBeUndefined();
        // The tools agree.
        const [root, queue] = await lab.tc(lab.host, 'qdisc', 'show', 'dev', 'q0');
        expect(root).toMatchObject({ kind: 'htb', handle: '1:', options: { r2q: 10, default: '0x30' } });
        expect(queue).toMatchObject({
          kind: 'bfifo',
          handle: '30:',
          parent: '1:30',
          options: { limit: 99_000 },
        });
        const classes = await lab.run(lab.host, ['tc', '-d', 'class', 'show', 'dev', 'q0']);
        expect(classes.stdout).toMatch(
          /class htb 1:30 .*quantum 12500 rate 1Mbit .*ceil 1Mbit .*burst 250000b/,
        );
        expect(classes.stdout).toMatch(/class htb 1:1 .*quantum 200000 rate 800Gbit .*ceil 1600Gbit/);
        const shown = await lab.run(lab.host, ['tc', '-p', 'filter', 'show', 'dev', 'q0']);
        expect(shown.stdout).toContain('match IP src 10.0.0.0/8');
        expect(shown.stdout).toContain('match IP dst 10.9.8.7/32');
      });
    });

    test('redirectRequest() sends everything elsewhere, and its target may vanish', async () => {
      await withSocket(async (lab, host) => {
        createLink(host, { name: 'q0', kind: 'ifb', up: true });
        createLink(host, { name: 'a', kind: 'veth', peer: { name: 'b' } });
        const [from, target] = [getLink(host, 'a').index, getLink(host, 'q0').index];
        expect(listIngressFilters(host, from)).toEqual([]);
        expect(() => host.request(redirectRequest(from, { preference: 1, target }))).toThrow(
          `Cannot redirect packets arriving on link with index ${from} to link with index ${target}: `,
        );
        host.request(ingressRequest(from));
        expect(() => host.request(ingressRequest(from))).toThrow('EEXIST');
        host.request(redirectRequest(from, { preference: 1, target }));
        const filters = await lab.tc(lab.host, 'filter', 'show', 'dev', 'a', 'ingress');
        expect(filters.find(({ options }) => options?.actions)).toMatchObject({
          protocol: 'all',
          pref: 1,
          kind: 'u32',
          options: {
            flowid: '1:1',
            match: { value: '0', mask: '0', off: 0 },
            actions: [
              {
                kind: 'mirred',
                mirred_action: 'redirect',
                direction: 'egress',
                to_dev: 'q0',
                control_action: { type: 'stolen' },
              },
            ],
          },
        });
        expect(listIngressFilters(host, from)).toMatchObject([{ preference: 1, redirectAllTo: target }]);
        expect(findQdisc(host, from, 'ingress')).toMatchObject({ kind: 'ingress', parent: TC_H_INGRESS });

        removeLink(host, target);
        expect(listIngressFilters(host, from)).toMatchObject([{ redirectAllTo: 0 }]);
        removeIngressFilters(host, from, 1);
        removeIngressFilters(host, from, 1);
        expect(listIngressFilters(host, from)).toEqual([]);
        removeQdisc(host, { index: from, handle: tcHandle(0xffff, 0), parent: TC_H_INGRESS });
        removeIngressFilters(host, from, 1);
        expect(findQdisc(host, from, 'ingress')).toBeUndefined();
      });
    });

    test('listIngressFilters() tells a redirect of everything from other filters', async () => {
      await withSocket(async (lab, host) => {
        createLink(host, { name: 'a', kind: 'veth', peer: { name: 'b' } });
        const [from, target] = [getLink(host, 'a').index, getLink(host, 'b').index];
        host.request(ingressRequest(from));
        const redirect = ['action', 'mirred', 'egress', 'redirect', 'dev', 'b'];
        const add = (pref: number, ...rest: string[]) =>
          lab.tc(lab.host, 'filter', 'add', 'dev', 'a', 'ingress', 'pref', String(pref), 'protocol', ...rest);
        await add(1, 'ip', 'u32', 'match', 'ip', 'src', '192.0.2.1', 'classid', '1:2');
        await add(2, 'ip', 'u32', 'match', 'ip', 'src', '192.0.2.1', ...redirect);
        await add(
          3,
          'all',
          'u32',
          'match',
          'u32',
          '0',
          '0',
          'action',
          'mirred',
          'egress',
          'mirror',
          'dev',
          'b',
        );
        await add(4, 'all', 'u32', 'match', 'u32', '0', '0', ...redirect);
        expect(listIngressFilters(host, from).map(({ redirectAllTo }) => redirectAllTo)).toEqual([
          undefined,
          undefined,
          undefined,
          target,
        ]);
      });
    });
  },
  requiresLinkKind('ifb'),
);

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
