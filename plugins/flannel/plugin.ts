// What does flannel do for each verb?

import { defined } from '../../src/cni/defined.ts';
import { CniError, describeError, ErrorCode } from '../../src/cni/errors.ts';
import { type JsonObject, memberOf } from '../../src/cni/json.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import { type Call, type Delegate, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { DEFAULT_DATA_DIR, DEFAULT_SUBNET_FILE, FlannelConf, validateFlannelConf } from './config.ts';
import {
  findRecord,
  listRecords,
  type RecordKey,
  removeRecord,
  sweepRecords,
  writeRecord,
} from './records.ts';
import { readSubnetEnv, type SubnetEnv } from './subnet-env.ts';

/** Has another plugin connect the container to the subnet that flanneld obtained for this node. */
export const flannel = definePlugin({
  name: 'flannel',
  config: FlannelConf,
  netns: 'required',

  async add(call) {
    const [dataDir, conf] = [dataDirOf(call), render(call)];
    refuseTakenName(call);
    const delegate = delegateOf(call, conf);
    // An attachment that already existed must not be undone by this ADD.
    if (findKept(call) === undefined) {
      // Stored first: DEL must find what the delegate has begun, even if this process dies.
      writeRecord(dataDir, call.env, conf);
      // SPEC section 4: if a delegate's ADD fails, its DEL is run.
      call.onFailure("undo the delegate's ADD", async () => {
        await delegate.del();
        removeRecord(dataDir, call.env);
      });
    }
    return await delegate.add();
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
    const today = conf === 'broken' ? tryRender(call) : conf;
    if (today !== undefined) await delegateOf(call, withPrevResult(call, today)).del();
    removeRecord(dataDirOf(call), call.env);
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
    await tryAll([
      () => (conf ? delegateOf(call, { ...conf, ...(valid ? list : {}) }).gc() : undefined),
      () => sweepRecords(dataDirOf(call)),
      ...(stale ?? []).map(
        ({ record }) =>
          () =>
            removeRecord(dataDirOf(call), record),
      ),
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

/** An interface that existed before must not be deleted when the delegate undoes a failed ADD. */
function refuseTakenName({ container, containerNetns, env }: Call): void {
  if (findLink(container, env.ifname) === undefined) return;
  throw new Error(`Cannot create "${env.ifname}" in "${containerNetns.path}": it already exists`);
}

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
