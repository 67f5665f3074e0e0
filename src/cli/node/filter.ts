// Which attachments does the command line select?
import { didYouMean } from '../../cni/suggest.ts';
import { cidrContains, findCidr } from '../../net/cidr.ts';
import { findIp } from '../../net/ip.ts';
import type { NodeAttachment } from '../../node/model.ts';
import { titleOf } from '../../node/words.ts';
import { UsageError } from '../command.ts';

type Matches = (one: NodeAttachment, value: string) => boolean;

/** By key of `--filter`. */
const FILTERS: Readonly<Record<string, Matches>> = {
  name: (one, value) => titleOf(one).includes(value),
  id: ({ containerId }, value) => containerId.startsWith(value),
  network: ({ network }, value) => network === value,
  address: hasAddress,
  port: ({ ports }, value) =>
    ports.some(({ hostPort, protocol }) => [`${hostPort}`, `${hostPort}/${protocol}`].includes(value)),
  device: ({ hostDevice, device }, value) => [hostDevice?.name, device?.name].includes(value),
  state: ({ state }, value) => state === value,
  health: ({ health }, value) => health?.state === value,
  runner: ({ origin }, value) => origin.runner === value,
};

/**
 * The attachments that match all filters.
 * @param filters `<key>=<value>`
 * @throws UsageError for an unknown key
 */
export function selectAttachments(
  attachments: readonly NodeAttachment[],
  filters: readonly string[],
): NodeAttachment[] {
  const tests = filters.map(text => {
    const at = text.indexOf('=');
    const [key, value] = [text.slice(0, at), text.slice(at + 1)];
    const matches = at > 0 && Object.hasOwn(FILTERS, key) ? FILTERS[key] : undefined;
    if (matches) return (one: NodeAttachment) => matches(one, value);
    const near = at > 0 ? didYouMean(key, Object.keys(FILTERS)) : '';
    throw new UsageError(
      `Cannot use --filter "${text}": expected <key>=<value> with one of ${Object.keys(FILTERS).join(', ')}${near}`,
    );
  });
  return attachments.filter(one => tests.every(test => test(one)));
}

/** An address, or a subnet in which one lies. */
function hasAddress({ addresses }: NodeAttachment, value: string): boolean {
  const subnet = findCidr(value);
  const ips = addresses.flatMap(text => findCidr(text)?.ip ?? findIp(text) ?? []);
  if (subnet) return ips.some(ip => cidrContains(subnet, ip));
  const wanted = findIp(value);
  return wanted !== undefined && ips.some(ip => ip.family === wanted.family && ip.value === wanted.value);
}
