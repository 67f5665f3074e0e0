// Does the node forward the packets of its containers?
import { type Check, type Finding, fine, type NodeView } from '../finding.ts';
import { namePods, type RoutedPod } from '../routed-pod.ts';

/** Without forwarding, containers reach this node and each other on one bridge, and nothing else. */
export const forwarding: Check = {
  id: 'kernel.forwarding',
  run(node) {
    const findings = SWITCHES.flatMap(one => judge(node, one));
    return findings.length ? findings : fine(this.id, 'IPv4 and IPv6 forwarding is enabled');
  },
};

interface Switch {
  readonly family: 4 | 6;
  readonly path: string;
  readonly key: string;
}

const SWITCHES: readonly Switch[] = [
  { family: 4, path: '/proc/sys/net/ipv4/ip_forward', key: 'net.ipv4.ip_forward' },
  { family: 6, path: '/proc/sys/net/ipv6/conf/all/forwarding', key: 'net.ipv6.conf.all.forwarding' },
];

function judge(node: NodeView, { family, path, key }: Switch): Finding[] {
  const pods = node.pods?.filter(pod => pod.family === family);
  const mend = `sysctl -w ${key}=1`;
  const base = { id: forwarding.id, mend };
  if (node.read(path)?.trim() !== '0') return family === 4 ? judgeDevices(node, pods ?? []) : [];
  if (pods === undefined) {
    const found = `"${path}" is 0: the node forwards no IPv${family}; whether containers need it could not be seen`;
    return [{ ...base, severity: 'unexamined', found }];
  }
  if (pods.length > 0) {
    const found = `"${path}" is 0: the node forwards no IPv${family} of ${namePods(pods)}`;
    return [{ ...base, severity: 'error', found }];
  }
  const found = `"${path}" is 0: the node forwards no IPv${family} until a plugin with a gateway enables it, and stops when it is disabled again`;
  return [{ ...base, severity: 'info', found }];
}

/** For IPv4, the kernel asks the device on which a packet arrives; for IPv6, only the switch for all (ip6_forward()). */
function judgeDevices(node: NodeView, pods: readonly RoutedPod[]): Finding[] {
  const uplinks = node.routes.filter(({ destination }) => destination === '0.0.0.0/0');
  const devices = new Set([...pods, ...(pods.length ? uplinks : [])].map(({ device }) => device));
  return [...devices].flatMap((device): Finding[] => {
    const path = `/proc/sys/net/ipv4/conf/${device}/forwarding`;
    if (node.read(path)?.trim() !== '0') return [];
    const found = `"${path}" is 0: the node forwards no IPv4 that arrives there, to or from ${namePods(pods)}`;
    const mend = `sysctl -w net/ipv4/conf/${device}/forwarding=1`;
    return [{ id: forwarding.id, severity: 'error', found, mend }];
  });
}
