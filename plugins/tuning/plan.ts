// What is to be set, which source takes precedence, and what does the result contain?
import { type CniArgs, pickCniArgs } from '../../src/cni/env.ts';
import { invalidConfig } from '../../src/cni/errors.ts';
import { defined } from '../../src/cni/json.ts';
import { ipsFor, type Result } from '../../src/cni/result.ts';
import { isUnicastMac, parseMac, renderMac } from '../../src/net/interface.ts';
import { findCidr, findIp, IPV6_MIN_MTU, renderIp } from '../../src/net/ip.ts';
import { planSysctls, type Sysctl } from './allowlist.ts';
import type { TuningConf } from './config.ts';

/** Attributes of an interface; absent ones are left alone. */
export interface DeviceTuning {
  /** Lower-case colon notation. */
  readonly mac?: string;
  readonly promisc?: boolean;
  readonly mtu?: number;
  readonly allmulti?: boolean;
  readonly txQLen?: number;
}

export interface TuningPlan {
  readonly sysctls: readonly Sysctl[];
  readonly link: DeviceTuning;
}

export interface TuningState {
  /** Index of the interface; undefined if the plan sets none of its attributes, in which case it need not exist. */
  readonly index: number | undefined;
  /** By path, those that exist; without a value if they cannot be read. */
  readonly sysctls: ReadonlyMap<string, string | undefined>;
  /** The attributes that a plan names. */
  readonly link: DeviceTuning;
}

/** Attributes are transferred as 32-bit numbers; the kernel enforces the devices' own limits. */
const MAX_NUMBER = 2 ** 31 - 1;

/**
 * Applies the precedence: `args.cni` before the capability `mac`, before `CNI_ARGS`, before the configuration.
 * @throws CniError 7 for values that no interface can have
 */
export function planTuning(conf: TuningConf, args: CniArgs, ifname: string): TuningPlan {
  const last = conf.args?.cni ?? {};
  const mac = last.mac ?? (conf.runtimeConfig?.mac || pickCniArgs(args, ['MAC']).MAC || conf.mac);
  const mtu = planNumber('mtu', last.mtu ?? conf.mtu);
  const txQLen = planNumber('txQLen', last.txQLen ?? conf.txQLen);
  const allmulti = last.allmulti ?? conf.allmulti;
  const promisc = last.promisc ?? conf.promisc;
  return {
    sysctls: planSysctls([conf.sysctl, last.sysctl], ifname),
    link: {
      ...(mac ? { mac: planMac(mac) } : {}),
      ...(promisc ? { promisc } : {}),
      ...(mtu ? { mtu } : {}),
      ...defined({ allmulti, txQLen }),
    },
  };
}

/**
 * The kernel takes IPv6 with all its addresses from an interface whose MTU becomes smaller than IPv6 needs, without an error.
 * @throws CniError 7 if the result has such an address
 */
export function refuseLossOfIpv6({ mtu }: DeviceTuning, result: Result, ifname: string): void {
  if (mtu === undefined || mtu >= IPV6_MIN_MTU) return;
  const addresses = ipsFor(result, ifname).map(({ address }) => findCidr(address)?.ip);
  const lost = addresses.find(ip => ip?.family === 6);
  if (lost === undefined) return;
  throw invalidConfig(
    `Cannot set "mtu" of "${ifname}" to ${mtu}: it would lose its address ${renderIp(lost)}, since IPv6 needs ${IPV6_MIN_MTU} bytes; ` +
      'raise that, or remove IPv6 from "ipam"',
  );
}

const OPTIONS = ['mac', 'mtu', 'promisc', 'allmulti', 'txQLen'] as const;

/**
 * Why an option that a change sets would have no effect, human-readable: something that the change leaves takes precedence. Undefined if
 * there is no such option.
 */
export function findOverridden(conf: TuningConf, former: TuningConf, args: CniArgs): string | undefined {
  const last = conf.args?.cni ?? {};
  const [mac, before] = [conf, former].map(one => one.runtimeConfig?.mac || undefined);
  const isAsked = (key: (typeof OPTIONS)[number]) =>
    (conf[key] !== undefined && conf[key] !== former[key]) || (key === 'mac' && mac && mac !== before);
  const overridden = OPTIONS.find(key => isAsked(key) && last[key] !== undefined);
  const sysctl = Object.keys(conf.sysctl ?? {}).find(
    key => conf.sysctl?.[key] !== former.sysctl?.[key] && last.sysctl?.[key] !== undefined,
  );
  if (overridden || sysctl) return `"args.cni" has ${JSON.stringify(overridden ?? sysctl)}`;
  if (conf.mac === undefined || conf.mac === former.mac) return undefined;
  if (mac) return 'the capability "mac" has an address';
  return pickCniArgs(args, ['MAC']).MAC ? 'CNI_ARGS has "MAC"' : undefined;
}

/** `prevResult` with the interface's new hardware address and MTU; an interface of the same name in another sandbox is unchanged. */
export function planResult(
  prevResult: Result,
  { mac, mtu }: DeviceTuning,
  ifname: string,
  sandbox: string,
): Result {
  const interfaces = prevResult.interfaces?.map(one => {
    if (one.name !== ifname || one.sandbox !== sandbox) return one;
    return { ...one, ...defined({ mac, mtu }) };
  });
  return interfaces === undefined ? prevResult : { ...prevResult, interfaces };
}

/** The differences between plan and kernel, human-readable; empty if there are none. */
export function findDifferences(plan: TuningPlan, state: TuningState): string[] {
  const sysctls = plan.sysctls.flatMap(sysctl => {
    const path = findPath(sysctl, state);
    if (path === undefined) return [`sysctl "${sysctl.key}" does not exist`];
    const current = state.sysctls.get(path);
    // Some parameters, such as net/ipv4/route/flush, can only be written.
    if (current === undefined || normalize(current) === normalize(sysctl.value)) return [];
    return [`sysctl "${path}" is "${current}" instead of "${sysctl.value}"`];
  });
  const attributes = Object.entries(plan.link).flatMap(([name, wanted]) => {
    const current = state.link[name as keyof DeviceTuning];
    return current === wanted ? [] : [`${name} is ${current} instead of ${wanted}`];
  });
  return [...sysctls, ...attributes];
}

/** The file that a sysctl denotes, among those that exist. */
export function findPath({ paths }: Sysctl, state: TuningState): string | undefined {
  return paths.find(path => state.sysctls.has(path));
}

/** The kernel prints a value in its own way, however it was written: numbers in decimal, lists of ports by ranges, tabs between. */
function normalize(value: string): string {
  return value.trim().split(/\s+/).map(normalizeWord).join(' ');
}

function normalizeWord(word: string): string {
  // Numbers as C has them.
  if (/^0x[\da-f]+$/i.test(word)) return String(BigInt(word));
  if (/^0[0-7]+$/.test(word)) return String(Number.parseInt(word, 8));
  if (/^\d+(-\d+)?(,\d+(-\d+)?)+$/.test(word)) return mergeRanges(word);
  const ip = word.includes(':') ? findIp(word) : undefined;
  return ip ? renderIp(ip) : word;
}

/** `80,81,8000-8009` as `80-81,8000-8009`. */
function mergeRanges(list: string): string {
  const ranges = list.split(',').map(part => part.split('-').map(Number));
  const merged: [first: number, last: number][] = [];
  for (const [first = 0, last = first] of ranges.sort(([a = 0], [b = 0]) => a - b)) {
    const before = merged.at(-1);
    if (before && first <= before[1] + 1) before[1] = Math.max(before[1], last);
    else merged.push([first, last]);
  }
  return merged.map(([first, last]) => (first === last ? first : `${first}-${last}`)).join(',');
}

function planMac(text: string): string {
  let bytes: Uint8Array;
  try {
    bytes = parseMac(text);
  } catch (cause) {
    throw invalidConfig((cause as Error).message, { cause });
  }
  if (isUnicastMac(bytes)) return renderMac(bytes);
  throw invalidConfig(
    `Cannot use hardware address "${text}": an interface needs one that is neither multicast nor all zero`,
  );
}

function planNumber(name: string, value: number | undefined): number | undefined {
  if (value === undefined || (value >= 0 && value <= MAX_NUMBER)) return value;
  throw invalidConfig(`Cannot set "${name}" to ${value}: it must be between 0 and ${MAX_NUMBER}`);
}
