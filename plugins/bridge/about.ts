// What can tools know about bridge without running it?
import { reachBeyondHost } from '../../src/attach/reach.ts';
import { decode, type JsonObject } from '../../src/cni/json.ts';
import { aboutPlugin, mtuOf, type PluginAdvice } from '../../src/cni/plugin-about.ts';
import { BridgeConf, DEFAULT_BRIDGE, validateBridgeConf, wantsGateway } from './config.ts';

export const about = aboutPlugin({
  kind: 'main',
  summary: 'connects the container to a Linux bridge: addresses, gateway, routes, masquerading',
  capabilities: ['mac'],
  config: BridgeConf,
  validate: validateBridgeConf,
  advise: adviseOnBridge,
  needsGatewayInSubnet: true,
  networkKinds: [
    {
      name: 'bridge',
      text: 'containers share a switch, reach the outside through the node, and may have published ports',
      onLan: false,
      mayUseDhcp: false,
      answersOutside: true,
      configure: ({ ipam, ownDevice, ports }) => ({
        bridge: ownDevice,
        ...(ipam && { isDefaultGateway: true, ipMasq: true }),
        // Without it, a container does not reach its own published port.
        ...(ports && { hairpinMode: true }),
        ...(ipam && { ipam }),
      }),
    },
    {
      name: 'internal',
      text: 'containers share a switch, and reach each other and the node, but not the outside',
      onLan: false,
      mayUseDhcp: false,
      answersOutside: false,
      configure: ({ ipam, ownDevice }) => ({ bridge: ownDevice, ...(ipam && { isGateway: true, ipam }) }),
    },
  ],
  devicesOf: ({ bridge, mtu }) => [
    { name: typeof bridge === 'string' ? bridge : DEFAULT_BRIDGE, mtu: mtuOf(mtu) },
  ],
  needsOf: ({ uplinkInterface }) =>
    typeof uplinkInterface === 'string' && uplinkInterface !== ''
      ? [{ name: uplinkInterface, path: ['uplinkInterface'] }]
      : [],
  effectsOf(request) {
    const conf = decode(BridgeConf, request, 'request');
    const policies = [
      conf.ipMasq && 'masquerades traffic to other subnets',
      conf.macspoofchk && 'drops frames with a source address other than its own',
      conf.portIsolation && 'cannot reach other isolated ports of its bridge',
      conf.vlan > 0 && `is in VLAN ${conf.vlan}`,
    ];
    return { policies: policies.filter(one => one !== false) };
  },
  reachOf: request => reachOver(decode(BridgeConf, request, 'request')),
});

function reachOver(conf: BridgeConf): string[] {
  const { bridge, vlan, portIsolation, uplinkInterface, ipam, isDefaultGateway, ipMasq } = conf;
  const where = vlan > 0 ? `in VLAN ${vlan} of bridge "${bridge}"` : `on bridge "${bridge}"`;
  const others = uplinkInterface
    ? [`containers and machines on the network of "${uplinkInterface}" reach each other`]
    : [];
  const neighbours = portIsolation
    ? `containers ${where} do not reach each other, since their ports are isolated`
    : `containers ${where} reach each other`;
  if (!ipam?.type) return [`${neighbours}, with addresses that this list does not assign`, ...others];
  if (!wantsGateway(conf)) {
    const host = 'host and containers do not reach each other, since this list gives the bridge no address';
    return [neighbours, ...others, host];
  }
  return [
    neighbours,
    ...others,
    'host and containers reach each other, through the address of the bridge',
    ...reachBeyondHost({ ipam, isDefaultGateway, ipMasq }),
  ];
}

/** Options about the gateway that contradict each other. */
function adviseOnBridge(conf: BridgeConf, entry: JsonObject): PluginAdvice[] {
  const { isGateway, isDefaultGateway, ipMasq, ipam } = conf;
  const advice: PluginAdvice[] = [];
  if (ipMasq && !isGateway && !isDefaultGateway && ipam?.type) {
    const message =
      '"ipMasq" does nothing unless containers send their packets through the bridge: set "isGateway" or "isDefaultGateway" as well';
    advice.push({ path: ['ipMasq'], message });
  }
  for (const key of ['ipMasq', 'isDefaultGateway'] as const)
    if (conf[key] && !ipam?.type)
      advice.push({ path: [key], message: `"${key}" does nothing without addresses: add "ipam"` });
  const refuses = Object.entries(entry).some(
    ([key, value]) => key.toLowerCase() === 'isgateway' && value === false,
  );
  if (isDefaultGateway && refuses) {
    const message = '"isGateway" is false, but "isDefaultGateway" makes the bridge a gateway nevertheless';
    advice.push({ path: ['isGateway'], message });
  }
  return advice;
}
