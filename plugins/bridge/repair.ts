// What does the plugin restore when others have changed the bridge, port or rules?
import { repairAddresses, repairInterface } from '../../src/attach/container-repair.ts';
import { ensureForwarding } from '../../src/attach/forwarding.ts';
import { backendOf } from '../../src/attach/masq-backend.ts';
import { withSources } from '../../src/attach/masq-source.ts';
import { checkMasquerading, startMasquerading } from '../../src/attach/masquerading.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { checkRoutes, putRoutesRight } from '../../src/attach/routes.ts';
import { findLink, type Link, setBridgePort, setLink } from '../../src/netlink/rtnl/link.ts';
import { IFF_UP } from '../../src/netlink/rtnl/link-header.ts';
import type { Call } from '../../src/plugin/define.ts';
import { mend } from '../../src/plugin/mend.ts';
import { tryAll } from '../../src/plugin/try-all.ts';
import { type BridgeConf, gatewayPortName } from './config.ts';
import { ensureGroupFwdMask } from './kernel/bridge.ts';
import { ensureGateways } from './kernel/gateway.ts';
import { checkMacspoof, ensureMacspoof } from './kernel/macspoof.ts';
import { hasReferenceMacspoof } from './kernel/macspoof-reference.ts';
import { removeWrongNeighbours } from './kernel/neighbours.ts';
import { ensureSubnetRoutes } from './kernel/subnet-routes.ts';
import { ensureUplink } from './kernel/uplink.ts';
import { checkPortVlans, ensureFiltering, setPortVlans } from './kernel/vlan.ts';
import { type Addressing, addressingOf } from './plan.ts';
import { planVlans, wantsFiltering } from './vlans.ts';

/**
 * Restores the bridge's state and gateways, the port's membership and VLANs, the container's interface with its addresses and routes,
 * anti-spoofing, masquerading and forwarding. Does not recreate a missing device.
 * @throws Error when a device is missing: only a new ADD can make it, and whatever refers to it must not be restored alone
 */
export async function repairAttachment(call: Call<BridgeConf>): Promise<void> {
  const { conf, host, container, prevResult } = call;
  const [bridge, inside] = [findLink(host, conf.bridge), findLink(container, call.env.ifname)];
  const port = inside && findLink(host, inside.peer);
  if (!prevResult || !bridge || !inside || !port) {
    const gone = bridge ? `interface "${call.env.ifname}" and its host end` : `bridge "${conf.bridge}"`;
    throw new Error(`Cannot repair the attachment: only DEL and ADD can recreate ${gone}`);
  }
  const addressing = conf.ipam?.type ? addressingOf(conf, prevResult) : undefined;
  await tryAll([
    () => repairBridge(call, bridge, inside, addressing),
    () => repairPort(call, bridge, port),
    () => repairRules(call, port, repairInterface(call, inside)),
    () => {
      if (!conf.disableContainerInterface) raise(container, inside);
    },
    async () => {
      if (!addressing) return;
      const cidrs = addressing.ips.map(({ cidr }) => cidr);
      await tryAll([
        () => repairAddresses(call, inside, cidrs),
        () => repairLayer3(call, inside, addressing),
      ]);
    },
  ]);
}

function repairBridge(
  call: Call<BridgeConf>,
  bridge: Link,
  inside: Link,
  addressing: Addressing | undefined,
): void {
  const { conf, host } = call;
  raise(host, bridge);
  if (conf.promiscMode) setLink(host, bridge.index, { promisc: true });
  if (wantsFiltering(conf)) ensureFiltering(call, bridge);
  ensureGroupFwdMask(call, bridge);
  ensureUplink(call, bridge);
  const target = conf.vlan ? findLink(host, gatewayPortName(conf)) : bridge;
  if (!addressing?.gateways.length || !target) return;
  raise(host, target);
  const gateway = ensureGateways(call, target, addressing);
  ensureSubnetRoutes(host, target, addressing.gateways);
  removeWrongNeighbours(call.container, inside, gateway, addressing.gateways);
}

function repairPort({ conf, host }: Call<BridgeConf>, bridge: Link, port: Link): void {
  if (port.master !== bridge.index) setLink(host, port.index, { master: bridge.index });
  raise(host, port);
  if (conf.hairpinMode || conf.portIsolation)
    setBridgePort(host, port.index, { hairpin: conf.hairpinMode, isolated: conf.portIsolation });
  const vlans = planVlans(conf);
  if (!vlans) return;
  mend(
    () => checkPortVlans(host, bridge, port, vlans),
    () => setPortVlans(host, conf, port, vlans),
  );
}

function repairRules(call: Call<BridgeConf>, port: Link, inside: Link): void {
  if (!call.conf.macspoofchk) return;
  const [socket, owner, mac] = [call.hostNft, attachmentOf(call), inside.mac ?? ''];
  if (hasReferenceMacspoof(socket, owner)) return;
  mend(
    () => checkMacspoof(socket, owner, port.name, mac),
    () => ensureMacspoof(socket, owner, port.name, mac),
  );
}

function repairLayer3(call: Call<BridgeConf>, inside: Link, { ips, routes, gateways }: Addressing): void {
  const { conf, container } = call;
  mend(
    () => checkRoutes(container, inside, routes),
    () => putRoutesRight(container, inside, routes),
  );
  ensureForwarding(
    call,
    gateways.map(({ ip }) => ip),
  );
  if (!conf.ipMasq) return;
  const backend = backendOf(conf);
  const cidrs = withSources(
    conf,
    ips.map(({ cidr }) => cidr),
  );
  mend(
    () => checkMasquerading(call, backend, cidrs),
    () => startMasquerading(call, conf, cidrs),
  );
}

function raise(socket: Call['host'], link: Link): void {
  if (!(link.flags & IFF_UP)) setLink(socket, link.index, { up: true });
}
