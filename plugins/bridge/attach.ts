// In which steps does ADD connect a container to the bridge, and how is each taken back?
import { configureContainer } from '../../src/attach/container.ts';
import { ensureForwarding } from '../../src/attach/forwarding.ts';
import { attachmentOf } from '../../src/attach/owner.ts';
import { createPair, type Pair } from '../../src/attach/veth.ts';
import { isNetlinkError } from '../../src/netlink/errors.ts';
import { removeAddress } from '../../src/netlink/rtnl/addr.ts';
import { type Link, removeLink, setBridgePort, setLink } from '../../src/netlink/rtnl/link.ts';
import type { Call } from '../../src/plugin/define.ts';
import { Errno } from '../../src/sys/errno.ts';
import { trySysctl } from '../../src/sys/sysctl.ts';
import type { BridgeConf } from './config.ts';
import { ensureBridge, ensureGateways, removeUnusedBridge, withBridgeLock } from './kernel/bridge.ts';
import { requestedMac } from './mac.ts';
import type { Addressing } from './plan.ts';

/** The bridge and the pair of an attachment. */
export interface Attached extends Pair {
  readonly bridge: Link;
}

const VANISHED_ATTEMPTS = 3;

/** Bridge, pair and, with addressing, everything on layer 3 but masquerading. Registers its own undoing. */
export function attach(call: Call<BridgeConf>, addressing: Addressing | undefined): Attached {
  const { conf } = call;
  const attached = connect(call, addressing);
  trySysctl(`net/ipv6/conf/${attached.host.name}/accept_ra`, '0');
  if (addressing) {
    configureContainer(call, attached.container, addressing, conf.enabledad);
  } else if (!conf.disableContainerInterface) {
    setLink(call.container, attached.container.index, { up: true });
  }
  ensureForwarding((addressing?.gateways ?? []).map(({ ip }) => ip));
  return attached;
}

/** Under the bridge's lock, so that nobody of ours removes the bridge between its making and its first port. */
function connect(call: Call<BridgeConf>, addressing: Addressing | undefined): Attached {
  const { conf, host } = call;
  const mac = requestedMac(call);
  return withBridgeLock(conf.bridge, () => {
    for (let attempt = 1; ; attempt++) {
      const { link: bridge } = ensureBridge(host, {
        name: conf.bridge,
        mtu: conf.mtu,
        promisc: conf.promiscMode,
      });
      call.onFailure(`remove bridge "${conf.bridge}"`, () =>
        withBridgeLock(conf.bridge, () => removeUnusedBridge(host, conf.bridge)),
      );
      try {
        const added = ensureGateways(host, bridge, addressing?.gateways ?? [], conf.forceAddress);
        call.onFailure('take gateway addresses off the bridge', () => {
          for (const cidr of added) removeAddress(host, bridge.index, cidr);
        });
        const pair = createPair(host, call.container, call.containerNetns, {
          owner: attachmentOf(call),
          master: bridge.index,
          mtu: conf.mtu,
          mac,
        });
        call.onFailure(`delete link "${pair.host.name}"`, () => removeLink(host, pair.host.index));
        const flags = { hairpin: conf.hairpinMode, isolated: conf.portIsolation };
        if (flags.hairpin || flags.isolated) setBridgePort(host, pair.host.index, flags);
        return { bridge, ...pair };
      } catch (thrown) {
        // A foreign program may have removed the bridge under our hands.
        if (!isNetlinkError(thrown, Errno.ENODEV) || attempt === VANISHED_ATTEMPTS) throw thrown;
      }
    }
  });
}
