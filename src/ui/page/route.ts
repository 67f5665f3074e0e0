// Which view does the address name?
import type { AttachmentId } from '../../cni/attachment.ts';
import type { NodePort } from '../../node/model.ts';
import type { ShownNode } from '../shown.ts';

/** The views of the page, in the order of its navigation. */
export const VIEWS = ['attachments', 'networks', 'pools', 'ports', 'why-not', 'findings', 'log'] as const;
export type View = (typeof VIEWS)[number];

/** What is shown; `trace` is one of an attachment's requests. */
export type Route =
  | { readonly view: Exclude<View, 'why-not'> }
  | { readonly view: 'why-not'; readonly from: string; readonly to: string }
  | { readonly view: 'attachment'; readonly key: AttachmentId; readonly trace: string | undefined };

/** Reads the fragment of an address, such as `#/pools`; what it does not know is the first view. */
export function parseRoute(fragment: string): Route {
  const [, name = '', ...rest] = fragment.replace(/^#/, '').split('/').map(decoded);
  const [network, containerId, ifname, trace] = rest;
  if (name === 'attachment' && network && containerId && ifname)
    return { view: 'attachment', key: { network, containerId, ifname }, trace };
  const view = VIEWS.find(one => one === name) ?? VIEWS[0];
  return view === 'why-not' ? { view, from: network ?? '', to: containerId ?? '' } : { view };
}

/** The address of an attachment's view. */
export function hrefOf({ network, containerId, ifname }: AttachmentId, trace?: string): string {
  const parts = [network, containerId, ifname, ...(trace === undefined ? [] : [trace])];
  return `#/attachment/${parts.map(encodeURIComponent).join('/')}`;
}

/** The address of the view that follows a packet. */
export function hrefOfPacket(from: string, to: string): string {
  return `#/why-not/${[from, to].map(encodeURIComponent).join('/')}`;
}

/** A port of the host, as the end of a packet. */
export function endOf({ hostPort, protocol }: NodePort): string {
  return `:${hostPort}${protocol === 'udp' ? '/udp' : ''}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The node, and what is typed into the search field. */
export interface ViewProps {
  readonly node: ShownNode;
  readonly query: string;
}
