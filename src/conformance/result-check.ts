// Does a result have the shape of its version, and does it describe what exists?
import { describeError } from '../cni/errors.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseResult, type Result } from '../cni/result.ts';
import { atLeast, type SpecVersion } from '../cni/version.ts';
import { findCidr, renderCidr } from '../net/cidr.ts';
import { findIfnameProblem } from '../net/ifname.ts';
import { listAddresses } from '../netlink/rtnl/addr.ts';
import { findLink } from '../netlink/rtnl/link.ts';
import type { Namespace, TestHost } from '../testing/host.ts';
import type { Pod } from './exam.ts';

/** Human-readable problems with the form of a result object. */
export function findLayoutProblems(object: JsonObject, version: SpecVersion): string[] {
  let result: Result;
  try {
    result = parseResult(object, version);
  } catch (thrown) {
    return [describeError(thrown)];
  }
  if (!atLeast(version, '0.3.0')) {
    const misplaced = ['ips', 'interfaces'].filter(key => key in object);
    const addressed = isObject(object.ip4) || isObject(object.ip6);
    return [
      ...misplaced.map(key => `"${key}" does not exist in version ${version}`),
      ...(addressed ? [] : ['it has neither "ip4" nor "ip6"']),
    ];
  }
  return [
    ...['ip4', 'ip6']
      .filter(key => key in object)
      .map(key => `"${key}" does not exist in version ${version}`),
    ...interfaceProblems(result),
    ...ipProblems(result),
    ...(atLeast(version, '1.0.0') ? [] : familyProblems(object)),
  ];
}

function interfaceProblems({ interfaces = [] }: Result): string[] {
  return interfaces.flatMap(({ name, mac }, i) => {
    const problem = findIfnameProblem(name);
    return [
      ...(problem ? [`interfaces[${i}].name ${JSON.stringify(name)}: ${problem}`] : []),
      ...(mac && !/^([0-9a-f]{2}:)+[0-9a-f]{2}$/i.test(mac)
        ? [`interfaces[${i}].mac is ${JSON.stringify(mac)}`]
        : []),
    ];
  });
}

function ipProblems({ interfaces = [], ips = [] }: Result): string[] {
  return ips.flatMap((ip, i) => {
    const { interface: index } = ip;
    if (index === undefined || (index >= 0 && index < interfaces.length)) return [];
    return [`ips[${i}].interface is ${index}, of ${interfaces.length} interfaces`];
  });
}

/** Before 1.0.0 each address states its family. */
function familyProblems({ ips }: JsonObject): string[] {
  return (Array.isArray(ips) ? ips : []).filter(isObject).flatMap(({ version, address }, i) => {
    const family = String(findCidr(String(address))?.ip.family);
    return version === family ? [] : [`ips[${i}].version is ${JSON.stringify(version)}`];
  });
}

/** Interfaces of the result that do not exist, or differ from its description. */
export function findFalseInterfaces(
  { interfaces = [] }: Result,
  host: TestHost,
  { container }: Pod,
): string[] {
  return interfaces.flatMap(({ name, mac, sandbox }) => {
    const where = sandbox ? 'in the container' : 'on the host';
    if (sandbox && sandbox !== container.path)
      return [`${name}: its sandbox is ${JSON.stringify(sandbox)}, not CNI_NETNS`];
    const link = findLink((sandbox ? container : host.namespace).route, name);
    if (link === undefined) return [`${name} is not ${where}`];
    const differs = mac && link.mac && mac.toLowerCase() !== link.mac.toLowerCase();
    return differs ? [`${name}: its mac is ${link.mac}, not ${mac}`] : [];
  });
}

/** Addresses that the result assigns to interfaces in the container which do not have them. */
export function findFalseAddresses({ interfaces = [], ips = [] }: Result, { container }: Pod): string[] {
  return ips.flatMap(({ address, interface: index }) => {
    const owner = index === undefined ? undefined : interfaces[index];
    if (!owner?.sandbox) return [];
    return hasAddress(container, owner.name, address) ? [] : [`${address} is not on ${owner.name}`];
  });
}

function hasAddress({ route }: Namespace, name: string, address: string): boolean {
  const link = findLink(route, name);
  const cidr = findCidr(address);
  if (link === undefined || cidr === undefined) return false;
  return listAddresses(route, link.index).some(one => renderCidr(one.cidr) === renderCidr(cidr));
}
