// Are damaged replies of the kernel handled: messages, attributes of all our tables, elements, rules of other programs?
import fc from 'fast-check';
import { decodeMessages } from '../../../src/netlink/codec.ts';
import { listFlows } from '../../../src/netlink/conntrack.ts';
import { decodeEntries, decodeNatRule, listNftNat } from '../../../src/netlink/iptables/nat.ts';
import { findExemption, findOvertaken } from '../../../src/netlink/iptables/precedence.ts';

import { parseSaved } from '../../../src/netlink/iptables/program.ts';
import {
  findElement,
  findElements,
  listElements,
  listRawElements,
} from '../../../src/netlink/nft/element.ts';
import {
  findNumbered,
  findOwned,
  findOwnedProblems,
  listOwned,
  listOwners,
} from '../../../src/netlink/nft/skeleton.ts';
import {
  listChains,
  listDroppingChains,
  listRules,
  listSets,
  listTableNames,
  listTables,
  listTranslatingChains,
  summarizeChains,
} from '../../../src/netlink/nft/table.ts';
import {
  findAddressesOf,
  listAddresses,
  listAddressMessages,
  listIpv6Groups,
} from '../../../src/netlink/rtnl/addr.ts';
import { listBridgePorts } from '../../../src/netlink/rtnl/bridge-vlan.ts';
import { listFilters, listIngressFilters } from '../../../src/netlink/rtnl/filter.ts';
import {
  findLink,
  findLinks,
  findOtherEnds,
  getLink,
  listLinks,
  vxlanOf,
} from '../../../src/netlink/rtnl/link.ts';
import {
  findForwardingPort,
  findNeighbour,
  listForwarding,
  listPermanentNeighbours,
} from '../../../src/netlink/rtnl/neighbour.ts';
import { findQdisc, listClasses, listQdiscs, parsePsched } from '../../../src/netlink/rtnl/qdisc.ts';
import {
  findMatch,
  findWay,
  listDefaultRoutes,
  listOriginRoutes,
  listRefusingRoutes,
  listRouteMessages,
  listRoutes,
  listRoutesByDevice,
  listUnreachableDefaults,
} from '../../../src/netlink/rtnl/route.ts';
import { listRules as listPolicyRules } from '../../../src/netlink/rtnl/rule.ts';
import { type NetlinkSocket, refusalOf } from '../../../src/netlink/socket.ts';
import { Tables } from '../../../src/netlink/tables.ts';
import { renderMessage } from '../../../src/netlink/trace.ts';
import { answering } from '../../golden/rtnl/captured.ts';
import { door } from '../door.ts';
import { damagedBytes, damagedText } from '../mutate.ts';
import { answersOrComplains } from '../promise.ts';
import { MESSAGES } from '../samples.ts';

const ENVELOPE_BYTES = 16;
const BODIES = MESSAGES.map(message => message.subarray(ENVELOPE_BYTES));
const table = { family: 'inet', name: 't' } as const;
const VERDICTS = { table, name: 's', key: ['ether_addr'], data: 'verdict' } as const;
const target = { family: 4, value: 1n } as const;

/** Every request that we make to the kernel, by name. */
export const QUESTIONS: Readonly<Record<string, (socket: NetlinkSocket) => unknown>> = {
  findAddressesOf: socket => findAddressesOf(socket, 1, 2),
  listAddresses: socket => listAddresses(socket),
  listBridgePorts: socket => listBridgePorts(socket, 3),
  listClasses: socket => listClasses(socket, 3),
  listFilters: socket => listFilters(socket, 3, 1),
  listIngressFilters: socket => listIngressFilters(socket, 3),
  findLink: socket => findLink(socket, 'eth0'),
  findLinks: socket => findLinks(socket, ['eth0', 3]),
  findOtherEnds: socket => findOtherEnds(socket, listLinks(socket), 3),
  getLink: socket => getLink(socket, 'eth0'),
  listLinks: socket => listLinks(socket),
  vxlanOf: socket => listLinks(socket).map(vxlanOf),
  listIpv6Groups: socket => listIpv6Groups(socket, 3),
  listPermanentNeighbours: socket => [listPermanentNeighbours(socket), listPermanentNeighbours(socket, 3)],
  listForwarding: socket => listForwarding(socket, 3),
  findNeighbour: socket => findNeighbour(socket, 3, { family: 4, value: 0x0a000002n }),
  findForwardingPort: socket => findForwardingPort(socket, 3, '0a:00:00:00:00:02'),
  listQdiscs: socket => listQdiscs(socket),
  findQdisc: socket => (['root', 'ingress', 1] as const).map(at => findQdisc(socket, 3, at)),
  findMatch: socket => findMatch(socket, target),
  findWay: socket => findWay(socket, target),
  listDefaultRoutes: socket => listDefaultRoutes(socket),
  listRoutes: socket => listRoutes(socket),
  listRoutesByDevice: socket => listRoutesByDevice(socket),
  listRouteMessages: socket => listRouteMessages(socket),
  listAddressMessages: socket => listAddressMessages(socket),
  listTranslatingChains: socket => listTranslatingChains(socket, { hook: 'prerouting', priority: -100 }),
  findExemption: socket => findExemption(socket, 4, ['POSTROUTING'], () => true),
  findOvertaken: socket => findOvertaken(socket, 4, 'destination'),
  listOriginRoutes: socket => [listOriginRoutes(socket, 4, 67), listOriginRoutes(socket, 6, 67)],
  listRefusingRoutes: socket => listRefusingRoutes(socket),
  listPolicyRules: socket => listPolicyRules(socket),
  listFlows: socket => listFlows(socket, { family: 4 } as never),
  listChains: socket => listChains(socket, table),
  listDroppingChains: socket => listDroppingChains(socket, 'forward' as never),
  summarizeChains: socket => summarizeChains(socket, table),
  listSets: socket => listSets(socket, table),
  listTables: socket => listTables(socket),
  listTableNames: socket => listTableNames(socket),
  listElements: socket =>
    listElements(socket, { table, name: 's', key: ['ipv4_addr', 'inet_service'], data: ['ifname'] }),
  tables: socket => {
    const tables = new Tables((_, talk) => talk(socket));
    return [tables.ownElements, tables.filter, tables.policyRules, tables.neighbours];
  },
  listOwned: socket => listOwned(socket, [VERDICTS], () => true),
  listOwners: socket => listOwners(socket, [VERDICTS], () => true),
  findOwned: socket => findOwned(socket, [{ set: VERDICTS, key: ['02:00:00:00:00:01'] }], 'x'),
  findNumbered: socket => findNumbered(socket, [VERDICTS], { handle: 'x', note: 'y' }),
  findOwnedProblems: socket =>
    findOwnedProblems(socket, [], [{ set: VERDICTS, element: { key: ['02:00:00:00:00:01'] } }]),
  findElement: socket => findElement(socket, VERDICTS, ['02:00:00:00:00:01']),
  findElements: socket => findElements(socket, [{ set: VERDICTS, key: ['02:00:00:00:00:01'] }]),
  listRawElements: socket => listRawElements(socket, table, 's'),
  listVerdicts: socket => listElements(socket, VERDICTS),
  listRules: socket => listRules(socket, table).map(rule => [decodeNatRule(4, rule), decodeNatRule(6, rule)]),
  listUnreachableDefaults: socket => [listUnreachableDefaults(socket, 4), listUnreachableDefaults(socket, 6)],
  listNftNat: socket => [listNftNat(socket, 4), listNftNat(socket, 6)],
};

/** A reply to each question. */
export const replies = door({
  name: 'netlink replies',
  weight: 30,
  arbitrary: fc.tuple(fc.constantFrom(...Object.keys(QUESTIONS)), damagedBytes(BODIES)),
  run([question, body]) {
    answersOrComplains(() =>
      answering(
        () => [body],
        socket => QUESTIONS[question]?.(socket),
      ),
    );
  },
});

/** What the socket receives, before anything is known about it. */
export const messages = door({
  name: 'netlink messages',
  weight: 20,
  arbitrary: fc.tuple(damagedBytes(MESSAGES), fc.constantFrom(0, 12)),
  run([buffer, protocol]) {
    answersOrComplains(() => {
      for (const message of decodeMessages(buffer)) {
        answersOrComplains(() => renderMessage('recv', protocol, message));
        answersOrComplains(() => refusalOf(message, { op: 'do something' }));
      }
    });
  },
});

/** Rules of legacy iptables. */
export const legacyRules = door({
  name: 'iptables rules of the kernel',
  weight: 6,
  // A target that begins beyond the end of its entry.
  seeds: [[new Uint8Array(112).fill(255).fill(0, 0, 88).fill(112, 90, 91).fill(0, 91, 92), 4]],
  arbitrary: fc.tuple(
    damagedBytes([legacyEntry(4), legacyEntry(6)]),
    fc.constantFrom(4 as const, 6 as const),
  ),
  run([bytes, family]) {
    answersOrComplains(() => decodeEntries(family, bytes, new Map([[0, 'PREROUTING']])));
  },
});

/** The output of `iptables-save`. */
export const savedRules = door({
  name: 'iptables-save',
  weight: 5,
  arbitrary: damagedText([
    '*nat\n:PREROUTING ACCEPT [0:0]\n:CNI-DN-abc - [0:0]\n-A PREROUTING -m comment --comment "a \\"b\\"" -j CNI-DN-abc\nCOMMIT\n',
    '*filter\n:FORWARD DROP [1:2]\n-A FORWARD -s 10.9.0.2/32 -j ACCEPT\nCOMMIT\n# end\n',
  ]),
  run(text) {
    const { chains, rules } = parseSaved(text);
    if ([...chains, ...rules].some(one => one.includes('\n'))) throw new Error('a rule has two lines');
  },
});

/** The clock of traffic control. */
export const clock = door({
  name: '/proc/net/psched',
  weight: 1,
  arbitrary: damagedText(['000003e8 00000040 000f4240 3b9aca00\n', '00000000 00000000 0 0']),
  run(text) {
    const ticks = answersOrComplains(() => parsePsched(text));
    if (ticks !== undefined && !(ticks > 0 && Number.isFinite(ticks)))
      throw new Error(`it gives ${ticks} ticks`);
  },
});

/** An entry with a comment and DNAT as target, in the layout of ip_tables. */
function legacyEntry(family: 4 | 6): Uint8Array {
  const offsets = family === 4 ? 88 : 140;
  const entry = family === 4 ? 112 : 168;
  const [match, targetBytes] = [32 + 256, 32 + 24];
  const bytes = new Uint8Array(entry + match + targetBytes);
  const view = new DataView(bytes.buffer);
  view.setUint16(offsets, entry + match, true);
  view.setUint16(offsets + 2, bytes.length, true);
  view.setUint16(entry, match, true);
  bytes.set(new TextEncoder().encode('comment'), entry + 2);
  view.setUint16(entry + match, targetBytes, true);
  bytes.set(new TextEncoder().encode('DNAT'), entry + match + 2);
  return bytes;
}
