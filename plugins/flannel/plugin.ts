// What does flannel do for each verb?
import { CniError, describeError, ErrorCode } from '../../src/cni/errors.ts';
import { type JsonObject, memberOf } from '../../src/cni/json.ts';
import { findLink } from '../../src/netlink/rtnl/link.ts';
import { type Call, type Delegate, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { DEFAULT_DATA_DIR, DEFAULT_SUBNET_FILE, FlannelConf, validateFlannelConf } from './config.ts';
import { planDelegate } from './plan.ts';
import {
  findRecord,
  listRecords,
  type RecordKey,
  removeRecord,
  sweepRecords,
  writeRecord,
} from './records.ts';
import { readSubnetEnv } from './subnet-env.ts';

/** Has another plugin connect the container to the subnet that flanneld got for this node. */
export const flannel = definePlugin({
  name: 'flannel',
  config: FlannelConf,
  netns: 'required',

  async add(call) {
    const [dataDir, conf] = [dataDirOf(call), render(call)];
    refuseTakenName(call);
    const delegate = delegateOf(call, conf);
    // An attachment that is there already is not this ADD's to take back.
    if (findKept(call) === undefined) {
      // Kept first: what the delegate has begun must be found by DEL, whatever becomes of us.
      writeRecord(dataDir, call.env, conf);
      // SPEC section 4: a delegate whose ADD failed is run again with DEL.
      call.onFailure('take back what the delegate began', async () => {
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

  async del(call) {
    const conf = findKept(call);
    if (conf === 'broken')
      call.log.warn("what ADD had the delegate do is unknown; today's configuration has to do");
    const today = conf === 'broken' ? tryRender(call) : conf;
    if (today !== undefined) await delegateOf(call, withPrevResult(call, today)).del();
    removeRecord(dataDirOf(call), call.env);
  },

  async gc(call) {
    const { validAttachments: valid } = call;
    const own = listRecords(dataDirOf(call)).flatMap(record => {
      const conf = findKept(call, record);
      return typeof conf === 'object' && conf.name === call.network ? [{ record, conf }] : [];
    });
    // flanneld may be down; what was kept tells as well which plugins there are to clean up after.
    const conf = tryRender(call) ?? own.at(-1)?.conf;
    const stale = valid && own.filter(({ record }) => !valid.some(key => isOf(record, key)));
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

/** An interface that was there before must not go when the delegate is asked to take back a failed ADD. */
function refuseTakenName({ container, containerNetns, env }: Call): void {
  if (findLink(container, env.ifname) === undefined) return;
  throw new Error(`Cannot create "${env.ifname}" in "${containerNetns.path}": it is there already`);
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

/** What ADD kept. A reference that lost power leaves empty files, which must not keep a pod from going. */
function findKept(call: Call<FlannelConf>, key: RecordKey = call.env): JsonObject | 'broken' | undefined {
  try {
    return findRecord(dataDirOf(call), key);
  } catch (thrown) {
    call.log.warn(describeError(thrown));
    return 'broken';
  }
}

/** What was kept is what the delegate was called with; the runtime's result belongs to a later call. */
function withPrevResult({ request }: Call, conf: JsonObject): JsonObject {
  const prevResult = memberOf(request, 'prevResult');
  return prevResult === undefined ? conf : { ...conf, prevResult };
}

function dataDirOf({ conf }: Call<FlannelConf>): string {
  return conf.dataDir || DEFAULT_DATA_DIR;
}

function isOf(record: RecordKey, key: { containerID: string; ifname: string }): boolean {
  return record.containerId === key.containerID && record.ifname === key.ifname;
}
