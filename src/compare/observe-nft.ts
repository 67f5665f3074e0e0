// What is the complete nf_tables rule set, in order?

import { readNft } from '../lab/state/nft.ts';
import { isNetlinkError } from '../netlink/errors.ts';
import { NFPROTO } from '../netlink/nfgenmsg.ts';
import { chainMessage } from '../netlink/nft/chain.ts';
import { type NftFamily, NftMsg, nftType } from '../netlink/nft/message.ts';
import { ruleMessage } from '../netlink/nft/rule.ts';
import { tableMessage } from '../netlink/nft/table.ts';
import type { NetlinkSocket } from '../netlink/socket.ts';
import { Errno } from '../sys/errno.ts';
import type { Observed } from './observation.ts';
import { toText } from './text.ts';

/**
 * Tables, chains, rules, sets and elements.
 * @param hidden tables that are observed in another way: `ip nat`
 */
export function observeNft(
  socket: NetlinkSocket,
  hidden: ReadonlySet<string>,
): (readonly [string, Observed])[] {
  const isHidden = (table: string) => hidden.has(table);
  const objects = readNft(socket).flatMap(({ key, words, state, parent }) => {
    if (/^(rule|chain) /.test(key) || isHidden((parent ?? key).replace(/^table /, ''))) return [];
    return [[`${words}${key.startsWith('element') ? ` of ${parent}` : ''}`, state ?? {}] as const];
  });
  return [...objects, ...chains(socket, isHidden), ...rules(socket, isHidden)];
}

/** Every table of the namespace with its family: `ip nat`. */
export function listTableNames(socket: NetlinkSocket): string[] {
  return dump(socket, 'tables', NftMsg.GETTABLE).map(body => {
    const { header, attrs } = tableMessage.decode(body);
    return tableOf(header.family, attrs.name);
  });
}

type IsHidden = (table: string) => boolean;

function chains(socket: NetlinkSocket, isHidden: IsHidden): (readonly [string, Observed])[] {
  return dump(socket, 'chains', NftMsg.GETCHAIN).flatMap(body => {
    const { header, attrs } = chainMessage.decode(body);
    const table = tableOf(header.family, attrs.table);
    if (isHidden(table)) return [];
    const { name = '', table: _, unknown: __, ...more } = attrs;
    const shown = Object.entries(more).filter(([key]) => !VOLATILE.includes(key));
    return [[`chain ${name} in table ${table}`, texts(shown)] as const];
  });
}

/** Numbers that the kernel assigns or counts. */
const VOLATILE = ['handle', 'use', 'counters', 'id'];

function rules(socket: NetlinkSocket, isHidden: IsHidden): (readonly [string, Observed])[] {
  const places = new Map<string, number>();
  return dump(socket, 'rules', NftMsg.GETRULE).flatMap(body => {
    const { header, attrs } = ruleMessage.decode(body);
    const { chain = '', comment, expressions = [] } = attrs;
    const table = tableOf(header.family, attrs.table);
    if (isHidden(table)) return [];
    const chainName = `chain ${chain} in table ${table}`;
    const place = (places.get(chainName) ?? 0) + 1;
    places.set(chainName, place);
    const steps = expressions.filter(({ name }) => name !== 'counter').map(toText);
    return [
      [`rule ${place} of ${chainName}`, { steps: steps.join(' '), ...(comment ? { comment } : {}) }] as const,
    ];
  });
}

function texts(entries: readonly (readonly [string, unknown])[]): Observed {
  return Object.fromEntries(entries.map(([key, value]) => [key, toText(value)]));
}

function tableOf(family: number, name = ''): string {
  const families = Object.keys(NFPROTO) as NftFamily[];
  return `${families.find(one => NFPROTO[one] === family) ?? 'inet'} ${name}`;
}

/** A kernel without nf_tables has none of its objects. */
function dump(socket: NetlinkSocket, what: string, message: number): Uint8Array[] {
  try {
    const body = tableMessage.encode({ family: 0 }, {});
    return socket.dump({ op: `list ${what}`, type: nftType(message), body });
  } catch (thrown) {
    if (isNetlinkError(thrown, Errno.ENOENT, Errno.EINVAL, Errno.EOPNOTSUPP)) return [];
    throw thrown;
  }
}
