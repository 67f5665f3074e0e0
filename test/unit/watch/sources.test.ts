// Are devices that an ADD makes no damage, and is everything that happens to them later?
import { describe, expect, test } from 'bun:test';
import { renderOwner } from '../../../src/cni/attachment.ts';
import { attrs, type Envelope, layout, str } from '../../../src/netlink/codec.ts';
import { type Element, elementMessage } from '../../../src/netlink/nft/element.ts';
import { nfgenmsg, nftType } from '../../../src/netlink/nft/message.ts';
import { tableMessage } from '../../../src/netlink/nft/table.ts';
import { IFF_UP, linkMessage } from '../../../src/netlink/rtnl/link.ts';
import { tcmsg } from '../../../src/netlink/rtnl/qdisc.ts';
import type { WatchedAttachment } from '../../../src/watch/attachments.ts';
import { chooseSweep, DeviceHints, devicesChangedInside, hintsOfRules } from '../../../src/watch/sources.ts';

const [RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_DELADDR, RTM_DELQDISC] = [16, 17, 20, 21, 37];
const MAC = '02:00:00:00:00:01';
const HERE = { index: 7, name: 'veth7', isUp: true, master: 3, peer: 2, nsid: 5 };

interface Link {
  readonly name?: string;
  readonly isUp?: boolean;
  readonly master?: number;
  readonly mac?: string;
  readonly mtu?: number;
}

function link(type: number, index: number, { name = 'veth7', isUp = true, ...more }: Link = {}): Envelope {
  const { master = 3, mac = MAC, mtu = 1500 } = more;
  const own = { ifname: name, master, link: 2, linkNetnsId: 5, address: mac, mtu };
  return { type, flags: 0, seq: 0, body: linkMessage.encode({ index, flags: isUp ? IFF_UP : 0 }, own) };
}

/** Of the other end, which has index 2 there. */
const inside = (more: Link = {}, type = RTM_NEWLINK) => [
  { nsid: 5, messages: [link(type, 2, { name: 'eth0', ...more })] },
];
const address = (type: number) => ({
  type,
  flags: 0,
  seq: 0,
  body: new Uint8Array([2, 24, 0, 0, 2, 0, 0, 0]),
});

describe('a device of the host', () => {
  test('that is made and set up is no damage', () => {
    const hints = new DeviceHints([]);
    const made = [
      link(RTM_NEWLINK, 7, { isUp: false, master: 0 }),
      link(RTM_NEWLINK, 7, { isUp: false }),
      link(RTM_NEWLINK, 7),
    ];
    expect(hints.hintsOf(made)).toEqual([{ of: 'arrival' }]);
  });

  test.each([
    ['set down', link(RTM_NEWLINK, 7, { isUp: false })],
    ['deleted', link(RTM_DELLINK, 7)],
    ['renamed', link(RTM_NEWLINK, 7, { name: 'other' })],
    ['taken from its bridge', link(RTM_NEWLINK, 7, { master: 0 })],
  ])('that is %s may be damage', (_, message) => {
    expect(new DeviceHints([HERE]).hintsOf([message])).toEqual([{ of: 'device', name: 'veth7' }]);
    const made = new DeviceHints([]);
    made.hintsOf([link(RTM_NEWLINK, 7, { isUp: false }), link(RTM_NEWLINK, 7)]);
    expect(made.hintsOf([message])).toEqual([{ of: 'device', name: 'veth7' }]);
  });

  test('that is set down may be damage if it is not known which devices there are', () => {
    const hints = new DeviceHints([]);
    hints.reset(undefined);
    expect(hints.hintsOf([link(RTM_NEWLINK, 7, { isUp: false })])).toEqual([{ of: 'device', name: 'veth7' }]);
  });

  test('that gets its first queueing discipline has lost none', () => {
    const qdisc = (handle: number) => {
      const body = new Uint8Array(tcmsg.size);
      const view = new DataView(body.buffer);
      view.setInt32(4, 7, true);
      view.setUint32(8, handle, true);
      return { type: RTM_DELQDISC, flags: 0, seq: 0, body };
    };
    expect(new DeviceHints([HERE]).hintsOf([qdisc(0)])).toEqual([]);
    expect(new DeviceHints([HERE]).hintsOf([qdisc(0x10000)])).toEqual([{ of: 'device', name: 'veth7' }]);
  });
});

describe('an interface inside', () => {
  const attached = (mac: string | undefined = MAC) => {
    const interfaces = [
      { name: 'veth7' },
      { name: 'eth0', sandbox: '/run/netns/c1', ...(mac ? { mac } : {}) },
    ];
    const one = { key: 'k', devices: ['veth7'], result: { interfaces } };
    return new Map([['k', one as unknown as WatchedAttachment]]);
  };
  const changed =
    (hints: DeviceHints, of = attached()) =>
    (more: Link, type?: number) => [...devicesChangedInside(hints.hintsInside(inside(more, type)), of)];

  test('that is made and set up is no damage, whether its ADD has ended or not', () => {
    for (const of of [attached(), attached(MAC.toUpperCase()), attached(''), new Map()]) {
      const hints = new DeviceHints([]);
      hints.hintsOf([link(RTM_NEWLINK, 7, { isUp: false })]);
      const say = changed(hints, of);
      expect(say({ isUp: false })).toEqual([]);
      expect(say({})).toEqual([]);
      expect(hints.hintsInside([{ nsid: 5, messages: [address(RTM_NEWADDR)] }])).toEqual([]);
    }
  });

  test.each([
    ['set down', { isUp: false }],
    ['renamed', { name: 'other' }],
    ['given another hardware address', { mac: '02:00:00:00:00:02' }],
  ])('that is %s is looked at, whenever it was made', (_, more) => {
    expect(changed(new DeviceHints([HERE]))(more)).toEqual(['veth7']);
    const made = new DeviceHints([]);
    made.hintsOf([link(RTM_NEWLINK, 7, { isUp: false }), link(RTM_NEWLINK, 7)]);
    changed(made)({});
    expect(changed(made)(more)).toEqual(['veth7']);
    // What puts it back is no damage.
    expect(changed(made)({})).toEqual([]);
  });

  test('whose MTU changes, or that loses an address, is looked at', () => {
    const hints = new DeviceHints([HERE]);
    expect(changed(hints)({})).toEqual([]);
    expect(changed(hints)({ mtu: 1400 })).toEqual(['veth7']);
    const lost = hints.hintsInside([{ nsid: 5, messages: [address(RTM_DELADDR)] }]);
    expect([...devicesChangedInside(lost, attached())]).toEqual(['veth7']);
  });

  test('that is set down and up at once is looked at', () => {
    const hints = new DeviceHints([HERE]);
    const both = hints.hintsInside([...inside({ isUp: false }), ...inside()]);
    expect([...devicesChangedInside(both, attached())]).toEqual(['veth7']);
  });

  test('that is deleted is looked at', () => {
    expect(changed(new DeviceHints([HERE]))({}, RTM_DELLINK)).toEqual(['veth7']);
  });
});

type Named = Pick<Element, 'comment'>;

const OWNER = { network: 'net', containerId: 'c1', ifname: 'eth0' };
const COUNT: Named = {};
const ITS: Named = { comment: renderOwner(OWNER) };

const named = layout(nfgenmsg, attrs('named', { table: [1, str], second: [2, str], third: [3, str] }));

function message(type: number, body: Uint8Array): Envelope {
  return { type, flags: 0, seq: 0, body };
}

function elements(verb: 'NEW' | 'DEL', table: string, set: string, ...those: Named[]): Envelope {
  const list = those.map(({ comment }) => ({ comment }));
  return message(nftType(verb, 'SETELEM'), elementMessage.encode({}, { table, set, elements: list }));
}

const gone = (table: string, set: string, ...those: Named[]) => elements('DEL', table, set, ...those);
const added = (table: string, set: string) => elements('NEW', table, set, COUNT);
const rule = (table: string, chain: string) =>
  message(nftType('DEL', 'RULE'), named.encode({}, { table, second: chain }));
const chain = (table: string, name: string) =>
  message(nftType('DEL', 'CHAIN'), named.encode({}, { table, third: name }));

describe('deleted elements', () => {
  test('name their attachment', () => {
    const hints = hintsOfRules([gone('catena_portmap', 'claims4', ITS)]);
    expect(hints).toEqual([{ of: 'owner', owner: OWNER, table: 'catena_portmap' }]);
    expect(chooseSweep(hints)).toBeUndefined();
  });

  test('that count what attachments have are no damage if attachments left at the same time', () => {
    const [own, count] = [gone('catena_portmap', 'claims4', ITS), gone('catena_portmap', 'hostips4', COUNT)];
    expect(chooseSweep(hintsOfRules([own, count]))).toBeUndefined();
    // The kernel may report a transaction in two parts.
    expect(chooseSweep([...hintsOfRules([count]), ...hintsOfRules([own])])).toBeUndefined();
    const elsewhere = gone('catena_masquerade', 'pods4', ITS);
    expect(chooseSweep(hintsOfRules([elsewhere, count]))).toBe('possible');
    expect(chooseSweep(hintsOfRules([count]))).toBe('possible');
  });

  test('that count what attachments have are no damage if they are added again with another count', () => {
    const count = gone('catena_portmap', 'hostips4', COUNT);
    expect(hintsOfRules([count, added('catena_portmap', 'hostips4')])).toEqual([]);
    expect(chooseSweep(hintsOfRules([count, added('catena_portmap', 'tally4')]))).toBe('possible');
  });
});

describe('deleted rules', () => {
  test('a table of ours whose rules are switched off may be damage, one that is made is none', () => {
    const table = (name: string, flags: number) =>
      message(nftType('NEW', 'TABLE'), tableMessage.encode({ family: 1 }, { name, flags }));
    expect(hintsOfRules([table('catena_portmap', 0), table('other', 1)])).toEqual([]);
    expect(chooseSweep(hintsOfRules([table('catena_portmap', 1)]))).toBe('likely');
  });

  test('of kubelet and kube-proxy concern no attachment', () => {
    expect(hintsOfRules([rule('nat', 'KUBE-SERVICES'), chain('nat', 'KUBE-SVC-ABC')])).toEqual([]);
  });

  test.each([
    ['nat', 'POSTROUTING', 'possible'],
    ['filter', 'CNI-FORWARD', 'possible'],
    ['catena_portmap', 'KUBE-SERVICES', 'likely'],
    ['catena_masquerade', 'postrouting', 'likely'],
    ['other', 'POSTROUTING', undefined],
  ] as const)('of table %s, chain %s: %s', (table, name, sweep) => {
    expect(chooseSweep(hintsOfRules([rule(table, name)]))).toBe(sweep);
  });
});
