// What does the result say of the device that queues packets from a container?
import type { AttachmentId } from '../../src/cni/attachment.ts';
import type { Result, ResultInterface } from '../../src/cni/result.ts';
import type { Link } from '../../src/netlink/rtnl/link.ts';
import { ifbNamesOf } from './ifb.ts';

/** The result with this IFB device as the attachment's only one, or without any; addresses keep their interfaces. */
export function withIfb(result: Result, attachment: AttachmentId, ifb: Link | undefined): Result {
  const { interfaces = [], ips } = result;
  const names: readonly string[] = ifbNamesOf(attachment);
  const isOther = ({ name, sandbox }: ResultInterface) => Boolean(sandbox) || !names.includes(name);
  const others = interfaces.filter(isOther);
  if (ifb === undefined && others.length === interfaces.length) return result;
  const own = ifb ? [{ name: ifb.name, ...(ifb.mac ? { mac: ifb.mac } : {}) }] : [];
  return {
    ...result,
    interfaces: [...others, ...own],
    ...(ips && {
      ips: ips.map(ip => {
        const of = ip.interface === undefined ? undefined : interfaces[ip.interface];
        return of && isOther(of) ? { ...ip, interface: others.indexOf(of) } : ip;
      }),
    }),
  };
}
