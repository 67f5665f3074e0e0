// What does the bridge plugin do for each verb?
import { announceAddresses } from '../../src/attach/announce.ts';
import { ensureForwarding } from '../../src/attach/forwarding.ts';
import { dnsOf, needsInterface, prepareIpam, removeAndRelease } from '../../src/attach/ipam.ts';
import { requestedMac } from '../../src/attach/mac.ts';
import { backendOf } from '../../src/attach/masq-backend.ts';
import { withSources } from '../../src/attach/masq-source.ts';
import { handOverMasquerading } from '../../src/attach/masquerade-handover.ts';
import {
  checkMasquerading,
  startMasquerading,
  stopMasquerading,
  stopStaleMasquerading,
} from '../../src/attach/masquerading.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { awaitTraffic } from '../../src/attach/ready.ts';
import { settleAddresses } from '../../src/attach/settle.ts';
import { removePair, removeStalePairs } from '../../src/attach/veth.ts';
import type { AttachmentId } from '../../src/cni/attachment.ts';
import { defined } from '../../src/cni/defined.ts';
import type { HandoverMode } from '../../src/cni/env.ts';
import type { Result } from '../../src/cni/result.ts';
import { atLeast } from '../../src/cni/version.ts';
import { renderCidr } from '../../src/net/cidr.ts';
import { renderIp } from '../../src/net/ip.ts';
import { findLink, getLink, setLink } from '../../src/netlink/rtnl/link.ts';
import type { NetlinkSocket } from '../../src/netlink/socket.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { type Attached, address, bridgeNow, connect, stagesOf } from './attach.ts';
import { checkAttachment } from './check.ts';
import { BridgeConf, sharesLink, validateBridgeConf } from './config.ts';
import { leaveBridge, removeBridge } from './detach.ts';
import { listAllowed, removeMacspoof, removeStaleMacspoof } from './kernel/macspoof.ts';
import {
  ensureReferenceMacspoof,
  removeReferenceMacspoof,
  removeUnusedReferenceMacspoof,
} from './kernel/macspoof-reference.ts';
import { type Addressing, addressingOf, CONTAINER_INTERFACE, planAddressing } from './plan.ts';
import { repairAttachment } from './repair.ts';
import { probeBridge } from './status.ts';

/** Connects a container to a bridge and, with an IPAM plugin, to the outside. */
export const bridge = definePlugin({
  name: 'bridge',
  config: BridgeConf,
  netns: 'required',

  async add(call) {
    const { conf } = call;
    validateBridgeConf(conf);
    const mac = requestedMac(call);
    const askIpam = prepareIpam(call);
    const port = connect(call, mac);
    if (needsInterface(conf)) {
      setLink(call.container, port.container.index, { up: true });
      await awaitTraffic(call.log, stagesOf(call, port, undefined));
    }
    const ipam = await askIpam();
    const addressing = ipam && planAddressing(conf, ipam);
    // Such a plugin may have changed the interface, for example its MTU.
    const current = needsInterface(conf)
      ? { ...port, container: getLink(call.container, port.container.index) }
      : port;
    if (addressing && sharesLink(conf)) {
      const { probeAddresses } = await import('../../src/attach/conflict.ts');
      const stages = stagesOf(call, current, undefined);
      await probeAddresses(call, current.container, stages, addressing.ips);
    }
    const attached = address(call, current, addressing);
    if (addressing && conf.ipMasq) {
      const cidrs = addressing.ips.map(({ cidr }) => cidr);
      startMasquerading(call, conf, withSources(conf, cidrs));
    }
    if (!conf.disableContainerInterface) {
      await awaitTraffic(call.log, stagesOf(call, attached, addressing));
      const ips = (addressing?.ips ?? []).map(({ cidr }) => cidr.ip);
      if (ips.length)
        announceAddresses(call, attached.container, attached.gatewayPort ?? attached.bridge, ips);
    }
    if (addressing && conf.enabledad) await settleAddresses(call.container, attached.container);
    const bridge = bridgeNow(call, attached.bridge);
    // The last step, because it has no undo step.
    ensureForwarding(
      call,
      (addressing?.gateways ?? []).map(({ ip }) => ip),
    );
    return renderAttachment(call, { ...attached, bridge }, ipam, addressing);
  },

  async check(call) {
    const { conf, prevResult } = call;
    validateBridgeConf(conf);
    if (conf.ipam?.type) await call.delegate(conf.ipam.type).check();
    checkAttachment(call);
    if (!conf.ipMasq || !prevResult || !conf.ipam?.type) return;
    const cidrs = addressingOf(conf, prevResult).ips.map(({ cidr }) => cidr);
    checkMasquerading(call, backendOf(conf), withSources(conf, cidrs));
  },

  repair: repairAttachment,

  handOver(call, mode) {
    const { conf, prevResult } = call;
    const ips = conf.ipMasq && conf.ipam?.type && prevResult?.ips ? addressingOf(conf, prevResult).ips : [];
    return [
      ...handOverMasquerading(
        call,
        ips.map(({ cidr }) => cidr),
        mode,
      ),
      ...handOverMacspoof(call.hostNft, attachmentOf(call), mode),
    ];
  },

  async del(call) {
    await removeAndRelease(call, 'del', release =>
      removePair(call, () =>
        tryAll([
          () => removeMacspoof(call.hostNft, attachmentOf(call)),
          () => removeReferenceMacspoof(call.hostNft, attachmentOf(call)),
          () => stopMasquerading(call),
          () => leaveBridge(call),
          release,
        ]),
      ),
    );
  },

  async gc(call) {
    const { kept } = call;
    if (kept === undefined) return;
    await removeAndRelease(call, 'gc', release =>
      removeStalePairs(call, kept, () =>
        tryAll([
          () => removeStaleMacspoof(call.hostNft, call.network, kept),
          () => removeUnusedReferenceMacspoof(call.hostNft, port => findLink(call.host, port) !== undefined),
          () => stopStaleMasquerading(call, kept),
          () => removeBridge(call),
          release,
        ]),
      ),
    );
  },

  async status(call) {
    validateBridgeConf(call.conf);
    probeBridge(call);
    if (call.conf.ipam?.type) await call.delegate(call.conf.ipam.type).status();
  },
});

/** The result: bridge, host end, container interface and a VLAN's gateway in this order, then the IPAM result. */
function renderAttachment(
  call: Call<BridgeConf>,
  { bridge: link, host, container, gatewayPort }: Attached,
  ipam: Result | undefined,
  addressing: Addressing | undefined,
): Result {
  const { conf, env, version } = call;
  const reportsMtu = conf.mtu !== 0 && atLeast(version, '1.1.0');
  const interfaces = [
    { name: link.name, mac: link.mac ?? '' },
    { name: host.name, mac: host.mac ?? '' },
    {
      name: container.name,
      mac: container.mac ?? '',
      sandbox: env.netns,
      ...(reportsMtu ? { mtu: container.mtu } : {}),
    },
    ...(gatewayPort ? [{ name: gatewayPort.name, mac: gatewayPort.mac ?? '' }] : []),
  ];
  const dns = dnsOf(conf, ipam);
  const ips = addressing?.ips.map(({ cidr, gateway }) => ({
    address: renderCidr(cidr),
    ...(gateway ? { gateway: renderIp(gateway) } : {}),
    interface: CONTAINER_INTERFACE,
  }));
  const routes = addressing?.resultRoutes;
  return {
    ...ipam,
    interfaces,
    ...defined({ ips }),
    ...(routes?.length ? { routes: [...routes] } : {}),
    ...defined({ dns }),
  };
}

/** The new chains are added before the elements are removed, so that no frame passes unchecked. @returns what was in our sets */
function handOverMacspoof(socket: NetlinkSocket, owner: AttachmentId, mode: HandoverMode): string[] {
  const allowed = listAllowed(socket, owner);
  if (mode === 'do') {
    for (const { port, mac } of allowed) ensureReferenceMacspoof(socket, owner, port, mac);
    if (allowed.length) removeMacspoof(socket, owner);
  }
  return allowed.map(({ port }) => `anti-spoofing of "${port}"`);
}
