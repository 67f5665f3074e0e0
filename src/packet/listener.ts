// Does a process wait for the packet?
import type { Packet } from '../doctor/filter/packet.ts';
import { renderIp } from '../net/ip.ts';
import type { Listener } from '../netlink/sock-diag.ts';
import type { Walk } from './hop.ts';
import { hop } from './report.ts';
import type { Site } from './site.ts';

/** Asks the kernel for the sockets of the namespace. */
export function* listener(site: Site, packet: Packet): Walk {
  const { protocol, port } = packet;
  const all = protocol === 6 || protocol === 17 ? site.listeners(protocol) : undefined;
  if (all === undefined) {
    yield hop(site, packet, 'listener', 'unknown', 'its sockets cannot be read');
    return;
  }
  const own = all.filter(one => one.port === port);
  const takes = own.find(one => isOpen(one, packet));
  if (takes) {
    const words = `a process listens on ${renderIp(takes.address)} port ${port}`;
    yield hop(site, packet, 'listener', 'passes', words);
    return;
  }
  const others = own.map(({ address }) => renderIp(address)).join(', ');
  const words = others
    ? `processes listen on port ${port} of ${others} only`
    : `no process listens on ${protocol === 6 ? 'TCP' : 'UDP'} port ${port}`;
  yield hop(site, packet, 'listener', 'stops', words);
}

function isOpen({ address, onlyV6 }: Listener, { family, destination }: Packet): boolean {
  if (address.value === 0n) return address.family === family || (address.family === 6 && !onlyV6);
  const text = renderIp(address);
  return text === destination || text === `::ffff:${destination}`;
}
