// What has flanneld said about this node's share of the network?
import { readFileSync } from 'node:fs';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { type Cidr, findCidr, subnetOf } from '../../src/net/cidr.ts';

/** The file that flanneld maintains, `/run/flannel/subnet.env`. */
export interface SubnetEnv {
  /** The whole network, IPv4 first, each family in the file's order. */
  readonly networks: readonly Cidr[];
  /** The node's own subnets: at most one of each family, IPv4 first. */
  readonly subnets: readonly Cidr[];
  readonly mtu: number;
  /** Whether flanneld itself masquerades. */
  readonly ipMasq: boolean;
}

/**
 * Reads the file.
 * @throws CniError 11 if it does not exist: flanneld writes it when it has its subnet; 7 if its content is invalid
 */
export function readSubnetEnv(file: string): SubnetEnv {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    const missing = (cause as NodeJS.ErrnoException).code === 'ENOENT';
    throw new CniError(
      missing ? ErrorCode.tryAgainLater : ErrorCode.ioFailure,
      missing
        ? `Cannot read subnet file "${file}": it does not exist; flanneld writes it once it has a subnet`
        : `Cannot read subnet file "${file}": ${(cause as Error).message}`,
      { cause },
    );
  }
  return parseSubnetEnv(text, file);
}

/**
 * Parses the file: one `KEY=value` per line; other keys are ignored.
 * @throws CniError 7
 */
export function parseSubnetEnv(text: string, file: string): SubnetEnv {
  const values = new Map(
    text.split('\n').flatMap(line => {
      const equals = line.indexOf('=');
      return equals < 0 ? [] : [[line.slice(0, equals), line.slice(equals + 1).replace(/\r$/, '')] as const];
    }),
  );
  const refuse = (problem: string) =>
    new CniError(ErrorCode.invalidConfig, `Cannot use subnet file "${file}": ${problem}`);
  const cidrs = (key: string, family: 4 | 6): Cidr[] => {
    const value = values.get(key);
    return (value ? value.split(',') : []).map(part => {
      const cidr = findCidr(part.trim());
      if (cidr?.ip.family === family) return subnetOf(cidr);
      throw refuse(`${key} is ${JSON.stringify(value)}, expected IPv${family} subnets`);
    });
  };
  const [network4, network6] = [cidrs('FLANNEL_NETWORK', 4), cidrs('FLANNEL_IPV6_NETWORK', 6)];
  const subnets = [...cidrs('FLANNEL_SUBNET', 4).slice(0, 1), ...cidrs('FLANNEL_IPV6_SUBNET', 6).slice(0, 1)];
  const networks = [...network4, ...network6];
  const missing = [
    ...(networks.length ? [] : ['FLANNEL_NETWORK or FLANNEL_IPV6_NETWORK']),
    ...(subnets.length ? [] : ['FLANNEL_SUBNET or FLANNEL_IPV6_SUBNET']),
    ...['FLANNEL_MTU', 'FLANNEL_IPMASQ'].filter(key => !values.has(key)),
  ];
  if (missing.length) throw refuse(`it lacks ${missing.join(', ')}`);
  const mtu = values.get('FLANNEL_MTU') ?? '';
  if (!/^\d{1,9}$/.test(mtu)) throw refuse(`FLANNEL_MTU is ${JSON.stringify(mtu)}, expected bytes`);
  return { networks, subnets, mtu: Number(mtu), ipMasq: values.get('FLANNEL_IPMASQ') === 'true' };
}
