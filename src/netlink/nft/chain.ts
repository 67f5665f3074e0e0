// How are chains created, listed and deleted?

import { Errno } from '../../sys/errno.ts';
import { attrs, s32be, str, u32be, u64be } from '../codec/attrs.ts';
import type { Request } from '../codec/message.ts';
import { NFPROTO } from '../nfgenmsg.ts';
import type { NetlinkSocket } from '../socket.ts';
import { NF_DROP } from './data.ts';
import { NftMsg, nftLayout, nftRequest, renderTable, type Table } from './message.ts';

/** linux/netfilter.h, enum nf_inet_hooks */
export const HOOK = { prerouting: 0, input: 1, forward: 2, output: 3, postrouting: 4 } as const;

/** linux/netfilter_arp.h: the hooks of ARP count otherwise. */
const ARP_HOOK: Readonly<Record<string, number>> = { input: 0, output: 1, forward: 2 };

/** linux/netfilter_ipv4.h: the hook priorities of address translation, and of the raw stage before it. */
export const NF_IP_PRI_RAW = -300;
export const NF_IP_PRI_NAT_DST = -100;
export const NF_IP_PRI_NAT_SRC = 100;
/** The same: filters of forwarded packets. */
export const NF_IP_PRI_FILTER = 0;

/**
 * The priorities of our own translation. Among chains of address translation at one hook, whichever translates a connection first
 * decides, and of equal priorities the chain that was made last runs first. Whatever iptables, kube-proxy and Docker (at the numbers
 * above) and firewalld (10 later) translate is therefore theirs.
 */
export const OWN_NAT = { dst: NF_IP_PRI_NAT_DST + 20, src: NF_IP_PRI_NAT_SRC + 20 } as const;

/** linux/netfilter/nf_tables.h, enum nft_hook_attributes */
const hookAttrs = attrs('hook', {
  number: [1, u32be],
  priority: [2, s32be],
});

/** linux/netfilter/nf_tables.h, enum nft_chain_attributes */
const chainAttrs = attrs('chain', {
  table: [1, str],
  handle: [2, u64be],
  name: [3, str],
  hook: [4, hookAttrs],
  policy: [5, u32be],
  use: [6, u32be],
  type: [7, str],
  flags: [10, u32be],
});

/** NFT_MSG_NEWCHAIN, NFT_MSG_GETCHAIN and NFT_MSG_DELCHAIN. */
export const chainMessage = nftLayout('CHAIN', chainAttrs);

/** The hook at which packets enter a base chain. */
export interface BaseChain {
  readonly type: 'nat' | 'filter';
  readonly hook: keyof typeof HOOK;
  readonly priority: number;
}

/** A chain as the kernel reports it; `base` is absent for chains that are only jumped to. */
export interface Chain {
  readonly name: string;
  readonly base?: BaseChain;
  /** A base chain that drops packets which none of its rules accepted. */
  readonly drops?: true;
}

/**
 * Creates a chain unless it exists. Base chains accept packets that no rule decides about.
 * Same as: `nft add chain <family> <table> <name> [{ type nat hook <hook> priority <priority>; }]`
 */
export function addChain(table: Table, name: string, base?: BaseChain): Request {
  const op = `add chain "${name}" to table ${renderTable(table)}`;
  const hooked = base && {
    type: base.type,
    hook: {
      number: (table.family === 'arp' ? ARP_HOOK[base.hook] : undefined) ?? HOOK[base.hook],
      priority: base.priority,
    },
  };
  const values = { table: table.name, name, ...hooked };
  return nftRequest(op, NftMsg.NEWCHAIN, chainMessage, table.family, values);
}

/** Deletes a chain; EBUSY if it has rules or is jumped to. Same as: `nft delete chain <family> <table> <name>` */
export function deleteChain(table: Table, name: string): Request {
  const op = `delete chain "${name}" of table ${renderTable(table)}`;
  return nftRequest(op, NftMsg.DELCHAIN, chainMessage, table.family, { table: table.name, name });
}

/** True when the table has the chain. Constant cost. Same as: `nft list chain <family> <table> <name>` */
export function hasChain(socket: NetlinkSocket, table: Table, name: string): boolean {
  return findChain(socket, table, name) !== undefined;
}

/** True when the table has the chain, and packets that no rule of it decides about are dropped. Constant cost. */
export function isDropping(socket: NetlinkSocket, table: Table, name: string): boolean {
  return findChain(socket, table, name)?.policy === NF_DROP;
}

/** Chains of the table; none when the table does not exist. Same as: `nft list chains <family>` */
export function listChains(socket: NetlinkSocket, table: Table): Chain[] {
  const op = `list chains of table ${renderTable(table)}`;
  const bodies = socket.dump(nftRequest(op, NftMsg.GETCHAIN, chainMessage, table.family, {}));
  return bodies.flatMap(body => {
    const { header, attrs: own } = chainMessage.decode(body);
    // The kernel lists the chains of every table, whatever was requested.
    return header.family === NFPROTO[table.family] && own.table === table.name ? toChain(own) : [];
  });
}

/** Asks for one chain, at a cost that does not depend on the others; {@link decodeChain} decodes the answer. */
export function chainQuestion(table: Table, name: string): Request {
  const op = `find chain "${name}" of table ${renderTable(table)}`;
  const request = nftRequest(op, NftMsg.GETCHAIN, chainMessage, table.family, { table: table.name, name });
  return { ...request, isQuestion: true };
}

/** Decodes the answer to a {@link chainQuestion}. */
export function decodeChain(body: Uint8Array): Chain {
  return toChain(chainMessage.decode(body).attrs);
}

type ChainAttrs = ReturnType<typeof chainMessage.decode>['attrs'];

/** A chain by its decoded attributes. */
export function toChain({ name = '', type, hook, policy }: ChainAttrs): Chain {
  const at = hookName(hook?.number);
  if (at === undefined) return { name };
  const base = { type: type === 'nat' ? 'nat' : 'filter', hook: at, priority: hook?.priority ?? 0 } as const;
  return { name, base, ...(policy === NF_DROP ? { drops: true } : {}) };
}

function findChain(socket: NetlinkSocket, table: Table, name: string): ChainAttrs | undefined {
  const body = socket.find(chainQuestion(table, name), [Errno.ENOENT]);
  return body && chainMessage.decode(body).attrs;
}

function hookName(number: number | undefined): keyof typeof HOOK | undefined {
  const hooks = Object.keys(HOOK) as (keyof typeof HOOK)[];
  return number === undefined ? undefined : hooks.find(name => HOOK[name] === number);
}
