// Which kernel parameters of an interface does IPv6 on a pod's network need?
import type { Call } from '../../../src/plugin/define.ts';
import { inNetns } from '../../../src/sys/netns.ts';
import { findSysctl, trySysctl, writeSysctl } from '../../../src/sys/sysctl.ts';

/** Accept advertisements although the namespace forwards packets. */
const EVEN_IF_FORWARDING = '2';

/** What a way of getting addresses needs. */
export interface Needs {
  /** The kernel forms addresses from advertised prefixes. */
  readonly autoconf: boolean;
  /** Metric of default routes that the kernel learns from advertisements; undefined for its own. */
  readonly priority: number | undefined;
}

/**
 * Enables IPv6 on the interface, and that the kernel learns routers from advertisements, prefixes of the link too, and addresses if
 * they are to be formed. What was there before is put back when ADD fails.
 * @throws Error when the kernel has no IPv6, or the parameters cannot be written
 */
export function acceptAdvertisements(call: Call, name: string, { autoconf, priority }: Needs): void {
  const conf = `net/ipv6/conf/${name}`;
  const { containerNetns } = call;
  inNetns(containerNetns, () => {
    const isForwarding = findSysctl(`${conf}/forwarding`) === '1';
    const accepts = findSysctl(`${conf}/accept_ra`);
    if (accepts === undefined) throw new Error(`Cannot use IPv6 on "${name}": this kernel has no IPv6`);
    const wanted: [string, string][] = [
      ['accept_ra', isForwarding || accepts === EVEN_IF_FORWARDING ? EVEN_IF_FORWARDING : '1'],
      ...['accept_ra_defrtr', 'accept_ra_pinfo'].map((key): [string, string] => [key, '1']),
      ['autoconf', autoconf ? '1' : '0'],
      ['disable_ipv6', '0'],
    ];
    for (const [key, value] of wanted) change(call, `${conf}/${key}`, value);
    // Linux 5.12
    const metric = `${conf}/ra_defrtr_metric`;
    if (priority && findSysctl(metric) !== undefined) change(call, metric, String(priority));
  });
}

/** To be called in the container's namespace. */
function change(call: Call, path: string, value: string): void {
  const before = findSysctl(path);
  if (before === value) return;
  writeSysctl(path, value);
  if (before === undefined) return;
  const { containerNetns } = call;
  call.onFailure(`restore sysctl "${path}"`, () => inNetns(containerNetns, () => trySysctl(path, before)));
}
