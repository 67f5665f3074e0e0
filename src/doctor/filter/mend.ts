// With which command does the program that made a table let forwarded packets of a device pass?
import type { Chain } from '../../netlink/nft/chain.ts';
import type { Fate } from './walk.ts';

/**
 * The command of the program that made the table, if it can be told by its chains.
 * @param fate in a chain of the hook `forward`
 * @param chains those of its table
 */
export function acceptDevices(
  { table, base }: Pick<Fate, 'table' | 'base'>,
  chains: readonly Chain[],
  devices: readonly string[],
): string {
  const hasChain = (pattern: RegExp) => chains.some(one => pattern.test(one.name));
  const forEach = (render: (device: string) => string) => devices.map(render).join(' && ');
  if (table.name === 'firewalld')
    return `${forEach(device => `firewall-cmd --permanent --zone=trusted --add-interface=${device}`)} && firewall-cmd --reload`;
  if (hasChain(/^ufw6?-/))
    return forEach(device => `ufw route allow in on ${device} && ufw route allow out on ${device}`);
  if (table.name === 'filter' && base === 'FORWARD' && table.family !== 'inet') {
    const program = table.family === 'ip6' ? 'ip6tables' : 'iptables';
    const at = hasChain(/^DOCKER-USER$/) ? 'DOCKER-USER' : base;
    const accept = (sign: string, device: string) => `${program} -I ${at} ${sign} ${device} -j ACCEPT`;
    return forEach(device => `${accept('-i', device)} && ${accept('-o', device)}`);
  }
  const name = `${table.family} ${table.name}`;
  const insert = (key: string, device: string) => `nft insert rule ${name} ${base} ${key} ${device} accept`;
  return forEach(device => `${insert('iifname', device)} && ${insert('oifname', device)}`);
}
