// What of ours does the kernel hold that belongs to no attachment, and how is it removed?
import { findOwner } from '../../cni/attachment.ts';
import { commit, renderTable } from '../../netlink/nft/message.ts';
import { deleteTable } from '../../netlink/nft/table.ts';
import { type Link, removeLinks } from '../../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE } from '../../netlink/socket.ts';
import { isOwnTable, Tables } from '../../netlink/tables.ts';
import type { PurgeStep } from './files.ts';

/** The alias of every device of ours begins like this; that of an attachment's device names the attachment. */
const ALIAS_PREFIX = 'catena:';

/** Attachments to which an element of our tables belongs, human-readable, without doubles: their rules would go with the tables. */
export function listElementOwners(): string[] {
  const owners = new Tables().ownElements.map(({ comment }) => findOwner(comment));
  const names = owners.map(owner => owner && `${owner.network} ${owner.containerId} ${owner.ifname}`);
  return [...new Set(names)].filter(name => name !== undefined).sort();
}

/**
 * Removes our tables, with all that is in them, and the devices that we made for networks: bridges without a port of an attachment,
 * their own ports, and the host's macvlans.
 * @param dryRun only look
 * @throws NetlinkError when the kernel refuses
 */
export function purgeKernel(dryRun: boolean): PurgeStep[] {
  const kernel = new Tables();
  const own = kernel.nftTables.filter(isOwnTable);
  if (!dryRun) kernel.ask(NETLINK_NETFILTER, socket => commit(socket, own.map(deleteTable)));
  const judged = judgeDevices(kernel.links);
  const free = judged.filter(({ port }) => port === undefined).map(({ link }) => link.index);
  if (!dryRun) kernel.ask(NETLINK_ROUTE, socket => removeLinks(socket, free));
  const devices = judged.map(({ link, port }): PurgeStep => {
    const what = `device "${link.name}" of kind "${link.kind}"`;
    if (port === undefined) return { action: 'remove', what };
    return { action: 'keep', what, why: `"${port}" is a port of it` };
  });
  return [
    ...own.map(table => ({ action: 'remove' as const, what: `table ${renderTable(table)}` })),
    ...devices,
  ];
}

/** Devices of networks, with a port of the bridge that an attachment, or another program, has. */
function judgeDevices(links: readonly Link[]): { readonly link: Link; readonly port?: string }[] {
  const own = links.filter(isOfNetwork);
  const portOf = (bridge: Link) =>
    links.find(({ index, master }) => master === bridge.index && own.every(one => one.index !== index))?.name;
  const used = new Map(
    own.flatMap(link => {
      const port = portOf(link);
      return port === undefined ? [] : [[link.index, port] as const];
    }),
  );
  return own.map(link => {
    // Either end of a pair that carries the gateway of a VLAN.
    const ends = [link, ...own.filter(one => one.index === link.peer)];
    const port = ends.flatMap(({ index, master }) => used.get(index) ?? used.get(master) ?? [])[0];
    return port === undefined ? { link } : { link, port };
  });
}

function isOfNetwork({ attrs: { alias } }: Link): boolean {
  return alias?.startsWith(ALIAS_PREFIX) === true && findOwner(alias) === undefined;
}
