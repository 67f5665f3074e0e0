// What do tools know about third-party plugins that people chain with ours, and that bring no schema?
import type { JsonObject } from '../../cni/json.ts';
import { PLUGIN_KEYWORD } from '../../cni/plugin-about.ts';

/** The options of a plugin, in our words, as its documentation has them. */
interface WellKnown {
  readonly kind: 'main' | 'ipam' | 'meta';
  readonly summary: string;
  readonly capabilities?: readonly string[];
  readonly required?: readonly string[];
  readonly options: Readonly<Record<string, JsonObject>>;
  /** As in `PluginAbout`. */
  readonly follows?: (conf: JsonObject) => boolean;
}

const text = (description: string): JsonObject => ({ type: 'string', description });
const yesOrNo = (description: string): JsonObject => ({ type: 'boolean', description });
const number = (description: string, minimum: number, maximum?: number): JsonObject => ({
  type: 'integer',
  description,
  minimum,
  ...(maximum === undefined ? {} : { maximum }),
});
const oneOf = (description: string, ...values: string[]): JsonObject => ({ enum: values, description });
const listOf = (items: JsonObject, description: string): JsonObject => ({
  type: 'array',
  items,
  description,
});
const group = (
  description: string,
  properties: Record<string, JsonObject>,
  required: string[] = [],
): JsonObject => ({
  type: 'object',
  description,
  properties,
  required,
});

const IPAM = group('The plugin that assigns addresses, and its options.', { type: text('Its name.') });
const route = (what: string) =>
  listOf(
    group('A route.', { dst: text('The destination, a subnet.'), gw: text('The gateway.') }, ['dst']),
    what,
  );
const LOG_LEVEL = text('How much is logged, such as `info` or `debug`.');
const ON_OFF = ['on', 'off'];

/**
 * By type. Options that a later release adds are unknown here, as they are in any schema: `validate` warns of those, and refuses
 * none. A schema beside the executable counts instead of what is said here.
 */
export const WELL_KNOWN: Readonly<Record<string, WellKnown>> = {
  'route-override': {
    kind: 'meta',
    summary: "changes the routes that earlier plugins gave the container's interface",
    options: {
      flushroutes: yesOrNo('Whether all routes of the interface are removed first.'),
      flushgateway: yesOrNo('Whether the default route is removed first.'),
      delroutes: route('Routes that are removed.'),
      addroutes: route('Routes that are added.'),
      skipcheck: yesOrNo('Whether CHECK does nothing.'),
    },
  },
  'istio-cni': {
    kind: 'meta',
    summary: "redirects a pod's traffic to the proxy of the Istio mesh",
    options: {
      plugin_log_level: LOG_LEVEL,
      log_level: LOG_LEVEL,
      log_uds_address: text('The socket of the node agent that takes logs.'),
      cni_event_address: text('The socket of the node agent that is told of pods.'),
      cni_agent_run_dir: text("The node agent's run directory."),
      ambient_enabled: yesOrNo('Whether pods without a proxy of their own take part.'),
      exclude_namespaces: listOf(text('A namespace.'), 'Namespaces whose pods are left as they are.'),
      pod_namespace: text("The node agent's own namespace."),
      native_nftables: yesOrNo('Whether rules are written with nft instead of iptables.'),
      kubernetes: group('How the API is reached.', {
        kubeconfig: text('The file with address and credentials.'),
        cni_bin_dir: text('The directory of executables.'),
        exclude_namespaces: listOf(text('A namespace.'), 'Namespaces whose pods are left as they are.'),
      }),
    },
  },
  'linkerd-cni': {
    kind: 'meta',
    summary: "redirects a pod's traffic to the proxy of the Linkerd mesh",
    options: {
      log_level: LOG_LEVEL,
      policy: group('Who may ask the API.', {
        type: text('Always `k8s`.'),
        k8s_api_root: text("The API's address."),
        k8s_auth_token: text('The token of a service account.'),
      }),
      kubernetes: group('How the API is reached.', {
        kubeconfig: text('The file with address and credentials.'),
      }),
      linkerd: group('What the rules are like.', {
        'incoming-proxy-port': number('The port that gets connections to the pod.', 1, 65_535),
        'outgoing-proxy-port': number('The port that gets connections from the pod.', 1, 65_535),
        'proxy-uid': number('The user of the proxy, whose own connections are left alone.', 0),
        'proxy-gid': number('The group of the proxy, likewise.', 0),
        'ports-to-redirect': listOf(number('A port.', 1, 65_535), 'Ports that go to the proxy; empty: all.'),
        'inbound-ports-to-ignore': listOf(
          text('A port or range.'),
          'Ports of the pod that bypass the proxy.',
        ),
        'outbound-ports-to-ignore': listOf(
          text('A port or range.'),
          'Ports of others that bypass the proxy.',
        ),
        'subnets-to-ignore': listOf(text('A subnet.'), 'Destinations that bypass the proxy.'),
        simulate: yesOrNo('Whether rules are only logged.'),
        'use-wait-flag': yesOrNo('Whether iptables waits for the lock of others.'),
        'iptables-mode': text('Which iptables is used: `legacy`, `nft` or `plain`.'),
        ipv6: yesOrNo('Whether there are rules for IPv6.'),
      }),
    },
  },
  'cilium-cni': {
    kind: 'main',
    summary:
      'connects the container to the datapath of the Cilium agent, or follows another plugin of the chain',
    follows: conf => Boolean(conf['chaining-mode']),
    options: {
      'chaining-mode': text('How it follows another plugin, such as `generic-veth`; absent: it is alone.'),
      'enable-debug': yesOrNo('Whether details are logged.'),
      'log-file': text('Where it logs.'),
      'log-format': text('How it logs: `text` or `json`.'),
      'enable-route-mtu': yesOrNo('Whether routes have the MTU instead of the interface.'),
      mtu: number('The MTU of the interface.', 0),
      ipam: group('How addresses are chosen; the agent decides unless said otherwise.', {}),
      eni: group('Options for addresses of AWS.', {}),
      azure: group('Options for addresses of Azure.', {}),
    },
  },
  sriov: {
    kind: 'main',
    summary: 'moves a virtual function of a network card into the container',
    capabilities: ['mac', 'ips', 'deviceID'],
    options: {
      deviceID: text('The PCI address of the virtual function. Delegate runners set it from `resourceName`.'),
      vlan: number('The VLAN of its packets; 0: none.', 0, 4094),
      vlanQoS: number('The priority in the VLAN tag.', 0, 7),
      vlanProto: text('The kind of tag: `802.1q` or `802.1ad`.'),
      mac: text('The hardware address.'),
      mtu: number('The MTU.', 0),
      spoofchk: oneOf('Whether the card drops packets of other hardware addresses.', ...ON_OFF),
      trust: oneOf('Whether the container may change its hardware address and modes.', ...ON_OFF),
      link_state: oneOf('Which link state the card reports.', 'auto', 'enable', 'disable'),
      min_tx_rate: number('The rate that is guaranteed, in Mbit/s; 0: none.', 0),
      max_tx_rate: number('The limit, in Mbit/s; 0: none.', 0),
      logLevel: LOG_LEVEL,
      logFile: text('Where it logs.'),
      ipam: IPAM,
    },
  },
  bond: {
    kind: 'main',
    summary: "bonds several of the container's or the host's devices into one interface",
    required: ['mode', 'links', 'miimon'],
    options: {
      mode: oneOf(
        'How traffic is divided among the devices.',
        ...[
          'balance-rr',
          'active-backup',
          'balance-xor',
          'broadcast',
          '802.3ad',
          'balance-tlb',
          'balance-alb',
        ],
      ),
      links: listOf(group('A device.', { name: text('Its name.') }, ['name']), 'The devices.'),
      linksInContainer: yesOrNo('Whether the devices are in the container already, not on the host.'),
      miimon: { type: ['string', 'integer'], description: 'Milliseconds between two looks at the links.' },
      failOverMac: number('Which hardware address it has after a failure: 0 none, 1 active, 2 follow.', 0, 2),
      allSlavesActive: number('Whether copies of packets are passed on: 0 or 1.', 0, 1),
      mtu: number('The MTU.', 0),
      ipam: IPAM,
    },
  },
  ovs: {
    kind: 'main',
    summary: 'connects the container to a bridge of Open vSwitch with a veth pair',
    capabilities: ['mac', 'deviceID'],
    options: {
      bridge: text('The bridge, which exists.'),
      vlan: number('The VLAN of the port.', 0, 4094),
      trunk: listOf(
        group('A VLAN, or a range.', {
          id: number('A VLAN.', 0, 4094),
          minID: number('The first one.', 0, 4094),
          maxID: number('The last one.', 0, 4094),
        }),
        'VLANs that the port carries with their tags.',
      ),
      mtu: number('The MTU.', 0),
      deviceID: text('The PCI address of a virtual function, for offloading.'),
      interface_type: text("The type of the port's interface, such as `dpdkvhostuserclient`."),
      ofport_request: number('The OpenFlow number of the port.', 1, 65_279),
      socket_file: text('The socket of the database.'),
      configuration_path: text('A file with defaults for these options.'),
      link_state_check_retries: number('How often the state of the port is looked at.', 0),
      link_state_check_interval: number('Milliseconds in between.', 0),
      ipam: IPAM,
    },
  },
  rdma: {
    kind: 'meta',
    summary: 'moves the RDMA device of an earlier interface into the container',
    capabilities: ['deviceID'],
    options: {
      deviceID: text('The PCI address of the device. Delegate runners set it from `resourceName`.'),
    },
  },
  'tc-redirect-tap': {
    kind: 'meta',
    summary: 'adds a tap that a virtual machine uses in place of the interface of an earlier plugin',
    options: {},
  },
};

/** As it would be beside the executable. */
export function schemaOf({
  kind,
  summary,
  capabilities = [],
  required = [],
  options,
}: WellKnown): JsonObject {
  return {
    description: summary,
    [PLUGIN_KEYWORD]: { kind, capabilities },
    type: 'object',
    properties: options,
    required,
  };
}
