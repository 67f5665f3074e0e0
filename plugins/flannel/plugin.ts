// What does flannel do for each verb?

import { linkSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { refuseTakenName } from '../../src/attach/container.ts';
import { CniError, describeError, ErrorCode, invalidConfig } from '../../src/cni/errors.ts';
import { defined, type JsonObject, memberOf, parseObject } from '../../src/cni/json.ts';
import { putFile, removeFile, sweepGivenUp } from '../../src/files/put-file.ts';
import { namesIfThere } from '../../src/files/read-file.ts';
import { type Cidr, findCidr, renderCidr, subnetOf } from '../../src/net/ip.ts';
import { type Call, type Delegate, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/steps.ts';
import { DEFAULT_DATA_DIR, DEFAULT_SUBNET_FILE, FlannelConf, validateFlannelConf } from './config.ts';

/** Has another plugin connect the container to the subnet that flanneld obtained for this node. */
export const plugin = definePlugin({
  name: 'flannel',
  config: FlannelConf,
  netns: 'required',

  async add(call) {
    const [dataDir, conf] = [dataDirOf(call), render(call)];
    // An interface that existed before must not be deleted when the delegate undoes a failed ADD.
    refuseTakenName(call);
    const delegate = delegateOf(call, conf);
    const undo = () =>
      call.onFailure("undo the delegate's ADD", async () => {
        await delegate.del();
        await call.onceDeleted(() => removeRecord(dataDir, call.env));
      });
    // An attachment that already existed must not be undone by this ADD; a record that cannot be read is of none that DEL could undo.
    const isKept = typeof findKept(call) === 'object';
    if (!isKept) {
      // Stored first: DEL must find what the delegate has begun, even if this process dies.
      writeRecord(dataDir, call.env, conf);
      // SPEC section 4: if a delegate's ADD fails, its DEL is run.
      undo();
    }
    const result = await delegate.add();
    if (isKept) {
      // The delegate refuses what exists. What is stored is of an earlier boot, and flanneld may have another subnet and MTU since.
      undo();
      writeRecord(dataDir, call.env, conf);
    }
    return result;
  },

  async check(call) {
    const conf = findRecord(dataDirOf(call), call.env);
    if (conf === undefined) {
      const { containerId, ifname } = call.env;
      throw new Error(
        `Cannot check "${ifname}" of container "${containerId}": "${dataDirOf(call)}" holds no configuration for it`,
      );
    }
    await delegateOf(call, withPrevResult(call, conf)).check();
  },

  handOver(call) {
    const conf = findKept(call);
    return typeof conf === 'object' ? delegateOf(call, withPrevResult(call, conf)).handOver() : [];
  },

  async del(call) {
    const conf = findKept(call);
    if (conf === 'broken')
      call.log.warn('the delegate configuration of ADD is unknown; using the current configuration');
    // Without a subnet file as well, as after a power loss: what the delegate holds carries the attachment's name.
    const today = conf === 'broken' ? (tryRender(call) ?? planDelegate(call.conf, NO_SUBNETS)) : conf;
    if (today !== undefined) await delegateOf(call, withPrevResult(call, today)).del();
    // A repeated DEL knows by it what the delegate has not deleted yet.
    await call.onceDeleted(() => removeRecord(dataDirOf(call), call.env));
  },

  async gc(call) {
    const { validAttachments: valid, kept } = call;
    const own = listRecords(dataDirOf(call)).flatMap(record => {
      const conf = findKept(call, record);
      return typeof conf === 'object' && conf.name === call.network ? [{ record, conf }] : [];
    });
    // flanneld may be down; a stored configuration also tells which plugins have to clean up.
    const conf = tryRender(call) ?? own.at(-1)?.conf;
    const stale = kept && own.filter(({ record }) => !kept.has(record));
    const list = { 'cni.dev/valid-attachments': memberOf(call.request, 'cni.dev/valid-attachments') };
    const forget = (stale ?? []).map(
      ({ record }) =>
        () =>
          removeRecord(dataDirOf(call), record),
    );
    await tryAll([
      async () => {
        if (conf) await delegateOf(call, { ...conf, ...(valid ? list : {}) }).gc();
        await call.onceDeleted(() => tryAll(forget));
      },
      () => sweepRecords(dataDirOf(call)),
    ]);
  },

  async status(call) {
    let conf: JsonObject & { type: string };
    try {
      conf = render(call);
    } catch (cause) {
      if (cause instanceof CniError && cause.code === ErrorCode.invalidConfig) throw cause;
      throw new CniError(ErrorCode.unavailable, describeError(cause), { cause });
    }
    await delegateOf(call, conf).status();
  },
});

function render(call: Call<FlannelConf>): JsonObject & { type: string } {
  validateFlannelConf(call.conf);
  return planDelegate(call.conf, readSubnetEnv(call.conf.subnetFile || DEFAULT_SUBNET_FILE));
}

function tryRender(call: Call<FlannelConf>): JsonObject | undefined {
  try {
    return render(call);
  } catch (thrown) {
    call.log.debug(describeError(thrown));
    return undefined;
  }
}

function delegateOf(call: Call<FlannelConf>, conf: JsonObject): Delegate {
  return call.delegate(String(memberOf(conf, 'type')), conf);
}

/** The configuration that ADD stored. A power loss can leave empty files of the reference, which must not make DEL fail. */
function findKept(call: Call<FlannelConf>, key: RecordKey = call.env): JsonObject | 'broken' | undefined {
  try {
    return findRecord(dataDirOf(call), key);
  } catch (thrown) {
    call.log.warn(describeError(thrown));
    return 'broken';
  }
}

/** The stored configuration is the one that the delegate was called with; the runtime's result is from a later call. */
function withPrevResult({ request }: Call, conf: JsonObject): JsonObject {
  const prevResult = memberOf(request, 'prevResult');
  return prevResult === undefined ? conf : { ...conf, prevResult };
}

function dataDirOf({ conf }: Call<FlannelConf>): string {
  return conf.dataDir || DEFAULT_DATA_DIR;
}

/** The configuration of the delegate plugin. Its own keys take precedence, except for those that only we know. */
export function planDelegate(conf: FlannelConf, env: SubnetEnv): JsonObject & { type: string } {
  const { delegate = {}, name, cniVersion, runtimeConfig } = conf;
  const type = typeof delegate.type === 'string' ? delegate.type : 'bridge';
  return {
    // If flanneld does not masquerade, the delegate must, or the pods could not reach the outside.
    ipMasq: !env.ipMasq,
    mtu: env.mtu,
    ...(type === 'bridge' ? { isGateway: true } : {}),
    ...delegate,
    type,
    name,
    ...(cniVersion ? { cniVersion } : {}),
    ...defined({ runtimeConfig }),
    ipam: planIpam(conf, env),
  };
}

/** Subnets replace configured ranges; networks follow configured routes. */
function planIpam({ ipam = {} }: FlannelConf, { subnets, networks }: SubnetEnv): JsonObject {
  return {
    ...ipam,
    type: ipam.type ?? 'host-local',
    ranges: subnets.map(subnet => [{ subnet: renderCidr(subnet) }]),
    routes: [...(ipam.routes ?? []), ...networks.map(network => ({ dst: renderCidr(network) }))],
  };
}

// The reference has one file per container, named after its id, so a second attachment of the pod overwrites the first one's.
// Ours are named `<id>:<ifname>`, which cannot be a container id, and the container's own name is a hard link to the first of
// them: each plugin finds the other's files.

/** Identifies an attachment: container and interface. */
interface RecordKey {
  readonly containerId: string;
  readonly ifname: string;
}

/**
 * The configuration that ADD stored; undefined if there is none.
 * @throws CniError 6 for a file that cannot be parsed, Error for one that cannot be read
 */
export function findRecord(dataDir: string, key: RecordKey): JsonObject | undefined {
  const [own, shared] = [ownPath(dataDir, key), sharedPath(dataDir, key)];
  // A container's file with a second name belongs to another attachment.
  for (const path of [own, ...(isLinked(shared) ? [] : [shared])]) {
    let text: string;
    try {
      text = readFileSync(path, 'utf8');
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code === 'ENOENT') continue;
      throw new Error(`Cannot read "${path}": ${(cause as Error).message}`, { cause });
    }
    return parseObject(text, `delegate's configuration in "${path}"`);
  }
  return undefined;
}

/** Stores a configuration, complete and synced to disk before this returns. */
export function writeRecord(dataDir: string, key: RecordKey, conf: JsonObject): void {
  const path = ownPath(dataDir, key);
  const unfinished = unfinishedPath(dataDir, key);
  const shared = sharedPath(dataDir, key);
  const isOfAnother = isLinked(shared) && !isSame(shared, path);
  putFile(path, JSON.stringify(conf), { what: "delegate's configuration", unfinished, sync: true });
  if (isOfAnother) return;
  linkSync(path, unfinished);
  renameSync(unfinished, shared);
  // rename(2) does nothing if both names are links to the same file.
  rmSync(unfinished, { force: true });
}

/** Deletes a configuration; a missing one is ignored. */
export function removeRecord(dataDir: string, key: RecordKey): void {
  const [own, shared] = [ownPath(dataDir, key), sharedPath(dataDir, key)];
  // Left by an ADD that was killed: a second name would make the file look like that of another attachment.
  removeFile(unfinishedPath(dataDir, key));
  // A file with a single name was written by the reference, unless ours exists beside it.
  const isOurs = isSame(shared, own) || (statOf(own) === undefined && !isLinked(shared));
  if (isOurs) removeFile(shared);
  removeFile(own);
}

/** Attachments whose configuration is stored under a name of ours. */
export function listRecords(dataDir: string): RecordKey[] {
  return namesIfThere(dataDir, 'configurations').flatMap(name => {
    const [containerId, ifname, ...more] = name.split(':');
    if (!containerId || !ifname || more.length || isUnfinished(name)) return [];
    return { containerId, ifname };
  });
}

/** Removes temporary files that were begun long ago and will not be completed. */
export function sweepRecords(dataDir: string): void {
  sweepGivenUp(dataDir, isUnfinished);
}

/** A fixed name, so that DEL need not list the directory; no container id begins with a dot. */
function unfinishedPath(dataDir: string, { containerId, ifname }: RecordKey): string {
  return join(dataDir, `.${containerId}:${ifname}`);
}

function isUnfinished(name: string): boolean {
  return name.startsWith('.') && name.includes(':');
}

function ownPath(dataDir: string, { containerId, ifname }: RecordKey): string {
  return join(dataDir, `${containerId}:${ifname}`);
}

function sharedPath(dataDir: string, { containerId }: RecordKey): string {
  return join(dataDir, containerId);
}

function statOf(path: string) {
  return statSync(path, { throwIfNoEntry: false });
}

function isLinked(path: string): boolean {
  return (statOf(path)?.nlink ?? 0) > 1;
}

function isSame(a: string, b: string): boolean {
  const [one, other] = [statOf(a), statOf(b)];
  return one !== undefined && other !== undefined && one.dev === other.dev && one.ino === other.ino;
}

/** The file that flanneld maintains, `/run/flannel/subnet.env`. */
interface SubnetEnv {
  /** The whole network, IPv4 first, each family in the file's order. */
  readonly networks: readonly Cidr[];
  /** The node's own subnets: at most one of each family, IPv4 first. */
  readonly subnets: readonly Cidr[];
  readonly mtu: number;
  /** Whether flanneld itself masquerades. */
  readonly ipMasq: boolean;
}

const NO_SUBNETS: SubnetEnv = { networks: [], subnets: [], mtu: 0, ipMasq: false };

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
  const refuse = (problem: string) => invalidConfig(`Cannot use subnet file "${file}": ${problem}`);
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
