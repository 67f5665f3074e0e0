// Which ends of a connection does a command line mean?
import { findIp, isIp, renderIp } from '../../net/ip.ts';
import type { NodeModel } from '../model.ts';
import { addressesOf } from './world.ts';

/** Where a connection begins. */
export type From =
  | { readonly kind: 'outside'; readonly address?: string }
  | { readonly kind: 'node' }
  | { readonly kind: 'container'; readonly containerId: string };

/** Where it leads to. */
export interface To {
  /** `outside`: an address that no container has; it may be one of the node. */
  readonly kind: 'outside' | 'node' | 'container';
  readonly containerId?: string;
  /** Undefined for any that fits. */
  readonly address?: string;
  readonly port: number;
  /** `icmp`: an echo request, without ports. */
  readonly protocol: 'tcp' | 'udp' | 'icmp';
  /** For names, which have addresses of both families. */
  readonly family: 4 | 6;
}

/** Finds the id of a container by what an operator calls it. @throws CniError 3 */
type FindContainer = (given: string) => string;

/** `outside`, `node`, an address, or a container. */
export function parseFrom(text: string, model: NodeModel, find: FindContainer): From {
  if (text === 'outside' || text === 'node') return { kind: text };
  if (!isIp(text)) return { kind: 'container', containerId: find(text) };
  const owner = ownerOf(model, text);
  return owner === undefined
    ? { kind: 'outside', address: canonical(text) }
    : { kind: 'container', containerId: owner };
}

const TO = /^(?:(?:\[(?<v6>[^\]]+)\]|(?<host>[^:]*)):)?(?<port>\d{1,5})(?:\/(?<protocol>tcp|udp))?$/;

/** `8080`, `:8080`, `db:5432`, `10.22.0.7:80`, `[fd00::7]:53/udp`; undefined if it is none of them. */
export function parseTo(text: string, family: 4 | 6, model: NodeModel, find: FindContainer): To | undefined {
  const { v6, host = v6 ?? '', port: digits, protocol } = TO.exec(text)?.groups ?? {};
  const port = Number(digits);
  if (!(port > 0 && port < 65_536) || (v6 !== undefined && !isIp(v6))) return undefined;
  const rest = { port, protocol: protocol === 'udp' ? 'udp' : 'tcp', family } as const;
  if (host === '' || host === 'node') return { kind: 'node', ...rest };
  if (!isIp(host)) return { kind: 'container', containerId: find(host), ...rest };
  const address = canonical(host);
  const owner = ownerOf(model, address);
  return owner === undefined
    ? { kind: 'outside', address, ...rest }
    : { kind: 'container', containerId: owner, address, ...rest };
}

function ownerOf({ attachments }: NodeModel, text: string): string | undefined {
  const address = canonical(text);
  const own = attachments.filter(({ state }) => state === 'attached');
  return own.find(one => addressesOf(one).includes(address))?.containerId;
}

function canonical(text: string): string {
  const ip = findIp(text);
  return ip === undefined ? text : renderIp(ip);
}
