// What does the bridge link do for each verb?
import { CniError, describeError, toCniError } from '../../src/cni/errors.ts';
import type { Result } from '../../src/cni/result.ts';
import { atLeast } from '../../src/cni/version.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { renderIp } from '../../src/net/ip.ts';
import { type Call, type Done, definePlugin } from '../../src/plugin/define.ts';
import { type Attached, attach, attachmentOf } from './attach.ts';
import { checkAttachment } from './check.ts';
import { BridgeConf, validateBridgeConf } from './config.ts';
import { removeBridge, removePair, removeStalePairs } from './detach.ts';
import {
  checkMasquerade,
  ensureMasquerade,
  removeMasquerade,
  removeStaleMasquerade,
} from './kernel/masquerade.ts';
import { type Addressing, addressingOf, CONTAINER_INTERFACE, planAddressing } from './plan.ts';

/** Connects a container to a bridge and, with an IPAM plugin, to the world. */
export const bridge = definePlugin({
  name: 'bridge',
  config: BridgeConf,
  netns: 'required',

  async add(call) {
    const { conf } = call;
    validateBridgeConf(conf);
    const ipam = await askIpam(call);
    const addressing = ipam && planAddressing(conf, ipam);
    const attached = attach(call, addressing);
    if (addressing && conf.ipMasq) {
      const owner = attachmentOf(call);
      call.onFailure('stop masquerading', () => removeMasquerade(call.hostNft, owner));
      ensureMasquerade(
        call.hostNft,
        owner,
        addressing.ips.map(({ cidr }) => cidr),
      );
    }
    return renderAttachment(call, attached, ipam, addressing);
  },

  async check(call) {
    const { conf, prevResult } = call;
    validateBridgeConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    checkAttachment(call);
    if (!conf.ipMasq || !prevResult || !conf.ipam?.type) return;
    checkMasquerade(
      call.hostNft,
      attachmentOf(call),
      addressingOf(conf, prevResult).ips.map(({ cidr }) => cidr),
    );
  },

  async del(call) {
    const { conf } = call;
    // The address goes back last: nobody else may get it while something still points to it.
    await tryAll([
      () => removePair(call),
      () => removeMasquerade(call.hostNft, attachmentOf(call)),
      () => removeBridge(call),
      () => (conf.ipam?.type ? call.delegate(conf.ipam.type).del() : undefined),
    ]);
  },

  async gc(call) {
    const { conf, validAttachments } = call;
    if (validAttachments === undefined) return;
    const valid = validAttachments.map(one => ({
      network: call.network,
      containerId: one.containerID,
      ifname: one.ifname,
    }));
    await tryAll([
      () => removeStalePairs(call, valid),
      () => removeStaleMasquerade(call.hostNft, call.network, valid),
      () => removeBridge(call),
      () => (conf.ipam?.type ? call.delegate(conf.ipam.type).gc() : undefined),
    ]);
  },

  async status(call) {
    validateBridgeConf(call.conf);
    if (call.conf.ipam?.type) await call.delegate(call.conf.ipam.type).status();
  },
});

async function askIpam(call: Call<BridgeConf>): Promise<Result | undefined> {
  const type = call.conf.ipam?.type;
  if (!type) return undefined;
  const delegate = call.delegate(type);
  const result = await delegate.add();
  call.onFailure('give the addresses back', () => delegate.del());
  return result;
}

function renderAttachment(
  call: Call<BridgeConf>,
  { bridge: link, host, container }: Attached,
  ipam: Result | undefined,
  addressing: Addressing | undefined,
): Result {
  const { conf, env, version } = call;
  const reportsMtu = conf.mtu > 0 && atLeast(version, '1.1.0');
  const interfaces = [
    { name: link.name, mac: link.mac ?? '' },
    { name: host.name, mac: host.mac ?? '' },
    {
      name: container.name,
      mac: container.mac ?? '',
      sandbox: env.netns,
      ...(reportsMtu ? { mtu: container.mtu } : {}),
    },
  ];
  const dns = hasDns(conf) ? conf.dns : ipam?.dns;
  const ips = addressing?.ips.map(({ cidr, gateway }) => ({
    address: renderCidr(cidr),
    ...(gateway ? { gateway: renderIp(gateway) } : {}),
    interface: CONTAINER_INTERFACE,
  }));
  const routes = addressing?.resultRoutes;
  return {
    ...ipam,
    interfaces,
    ...(ips ? { ips } : {}),
    ...(routes?.length ? { routes: [...routes] } : {}),
    ...(dns ? { dns } : {}),
  };
}

/** Any member, even an empty list, makes the configuration's resolver settings replace IPAM's (reference behaviour). */
function hasDns({ dns }: BridgeConf): boolean {
  return dns !== undefined && Boolean(dns.nameservers || dns.search || dns.options || dns.domain);
}

/** Runs every step even if one fails, and reports all failures with the code of the first. */
async function tryAll(steps: readonly (() => Done)[]): Promise<void> {
  const problems: unknown[] = [];
  for (const step of steps) {
    try {
      await step();
    } catch (thrown) {
      problems.push(thrown);
    }
  }
  if (problems.length === 0) return;
  const first = toCniError(problems[0]);
  if (problems.length === 1) throw first;
  throw new CniError(first.code, problems.map(describeError).join('; '), {
    cause: new AggregateError(problems),
  });
}
