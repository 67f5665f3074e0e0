// Which shapes do configurations and results have, in each of the three historical layouts?
//
// Every process builds its schemas at start; a shared piece is built only once.

import * as z from 'zod/mini';
import { findCidr, findIp } from '../net/ip.ts';

export const optionalText = z.optional(z.string());

const optionalInt = z.optional(z.int());

export const optionalFlag = z.optional(z.boolean());

export const optionalTexts = z.optional(z.array(z.string()));

export const optionalObject = z.optional(z.looseObject({}));

/** One port of the host forwarded into the container (CONVENTIONS.md "portMappings"). */
export const PortMapping = z.object({
  /** Port of the host, 1 to 65535. */
  hostPort: z.int().check(z.minimum(1), z.maximum(65535)),
  /** Port in the container, 1 to 65535. */
  containerPort: z.int().check(z.minimum(1), z.maximum(65535)),
  /** `tcp`, `udp` or `sctp`; tcp when absent. */
  protocol: optionalText,
  /** Address of the host on which the port is mapped; all when absent. */
  hostIP: optionalText,
});
export type PortMapping = z.output<typeof PortMapping>;

/** Rates in bits per second, bursts in bits (CONVENTIONS.md "bandwidth"). */
export const Bandwidth = z.object({
  /** Bits per second towards the container; 0 is unlimited. */
  ingressRate: z.optional(z.int().check(z.minimum(0))),
  /** Bits that may arrive at once before `ingressRate` holds. */
  ingressBurst: z.optional(z.int().check(z.minimum(0))),
  /** Bits per second from the container; 0 is unlimited. */
  egressRate: z.optional(z.int().check(z.minimum(0))),
  /** Bits that may leave at once before `egressRate` holds. */
  egressBurst: z.optional(z.int().check(z.minimum(0))),
});
export type Bandwidth = z.output<typeof Bandwidth>;

/** One range of addresses that an IPAM plugin may hand out (CONVENTIONS.md "ipRanges"). */
export const IpRange = z.object({
  /** The subnet in CIDR notation, without host bits. */
  subnet: z.string(),
  /** First address to hand out; the one after the network address when absent. */
  rangeStart: optionalText,
  /** Last address to hand out; the one before the broadcast address (IPv6: the last one) when absent. */
  rangeEnd: optionalText,
  /** Gateway, never handed out; the address after the network address when absent. */
  gateway: optionalText,
  /** What is not handed out: addresses, subnets, or first and last address joined by `-`. */
  exclude: z.optional(z.array(z.string())),
  /** Hands out these only, in the same notation, instead of all from `rangeStart` to `rangeEnd`. */
  addresses: z.optional(z.array(z.string())),
});
export type IpRange = z.output<typeof IpRange>;

/** Resolver settings, also the `dns` key of configurations. */
export const Dns = z.looseObject({
  nameservers: optionalTexts,
  domain: optionalText,
  search: optionalTexts,
  options: optionalTexts,
});

const CidrText = z
  .string()
  .check(z.refine(text => findCidr(text) !== undefined, 'must be an address with a prefix length'));
/** Empty counts as absent, as in the reference. */
const GatewayText = z
  .string()
  .check(z.refine(text => text === '' || findIp(text) !== undefined, 'must be an address'));

/** A route of a result, also of the `routes` key of IPAM configurations. */
export const Route = z.looseObject({
  dst: CidrText,
  gw: z.optional(GatewayText),
  gws: z.optional(z.array(GatewayText)),
  mtu: optionalInt,
  advmss: optionalInt,
  priority: optionalInt,
  table: optionalInt,
  scope: optionalInt,
});

/** `mtu`, `socketPath` and `pciID` exist since 1.1.0. If an older result has them, they are treated as those of 1.1.0. */
const Interface = z.looseObject({
  name: z.string(),
  mac: optionalText,
  mtu: optionalInt,
  sandbox: optionalText,
  socketPath: optionalText,
  pciID: optionalText,
});

const address = { address: CidrText, gateway: z.optional(GatewayText), interface: optionalInt };
const rest = { routes: z.optional(z.array(Route)), dns: z.optional(Dns) };
const interfaces = z.optional(z.array(Interface));

const IpFamily = z.optional(
  z.looseObject({ ip: CidrText, gateway: z.optional(GatewayText), routes: z.optional(z.array(Route)) }),
);

/** 0.1.0 and 0.2.0: one address of each family. */
export const FamiliesResult = z.looseObject({ ip4: IpFamily, ip6: IpFamily, dns: z.optional(Dns) });

/** 0.3.0 to 0.4.0: each address states its family. */
export const VersionedIpsResult = z.looseObject({
  interfaces,
  ips: z.optional(z.array(z.looseObject({ version: optionalText, ...address }))),
  ...rest,
});

/** 1.0.0 and 1.1.0. */
export const IpsResult = z.looseObject({
  interfaces,
  ips: z.optional(z.array(z.looseObject(address))),
  ...rest,
});

/** An entry of GC's list of valid attachments. */
export const AttachmentKey = z.object({ containerID: z.string(), ifname: z.string() });
export type AttachmentKey = z.output<typeof AttachmentKey>;

export const AttachmentKeys = z.array(AttachmentKey);

/** The key under which GC passes the attachments to keep (SPEC "GC"). */
export const VALID_ATTACHMENTS = 'cni.dev/valid-attachments';

/**
 * Keys that the specification defines for a plugin configuration; each plugin's own schema extends this one. It covers what
 * a running plugin can use. `type` may be missing: it is for the runtime, which has already found the plugin.
 */
export const PluginConfig = z.looseObject({
  /** Version of the specification; in a list, the runtime sets it to the list's. */
  cniVersion: optionalText,
  /** Name of the network; in a list, the runtime sets it to the list's. */
  name: optionalText,
  /** Name of the executable, looked up in CNI_PATH. */
  type: optionalText,
  /** What the runtime may pass to this plugin: true by name of the capability. */
  capabilities: z.optional(z.record(z.string(), z.boolean())),
  /** The IPAM plugin that the plugin calls, and its options. */
  ipam: z.optional(z.looseObject({ type: optionalText })),
  /** Resolver settings for the result. */
  dns: z.optional(Dns),
  /** Result of the previous plugin; set by the runtime. */
  prevResult: optionalObject,
  /** Attachments that GC keeps; set by the runtime. */
  [VALID_ATTACHMENTS]: z.optional(AttachmentKeys),
});
export type PluginConfig = z.output<typeof PluginConfig>;

/** What is needed to find the leases of an IPAM plugin that notes them on disk. DEL reads nothing else, so addresses can be released even if other options are invalid. */
export const LeaseConf = z.extend(PluginConfig, {
  ipam: z.looseObject({
    type: z.optional(z.string()),
    dataDir: z.optional(z.string()),
    reclaimAfterReboot: z.optional(z.boolean()),
  }),
});
export type LeaseConf = z.output<typeof LeaseConf>;

/** The same in a conflist or a file of its own, where `type` is required. */
export const ListedPlugin = z.extend(PluginConfig, {
  /** Name of the executable, looked up in CNI_PATH. */
  type: z.string().check(z.minLength(1)),
});
export type ListedPlugin = z.output<typeof ListedPlugin>;

/** True for a key that only a runtime may set; in a file it has no meaning. */
export function isRuntimeKey(key: string): boolean {
  return key === 'prevResult' || key.startsWith('cni.dev/');
}

/** What the loader accepts as a boolean. */
const Switch = z.union(
  [
    z.boolean(),
    z.string().check(z.regex(/^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$/, 'must be true or false')),
  ],
  'must be true or false',
);

/**
 * The shape of a conflist (SPEC "Configuration format"), for published schemas and for tools that report every mistake at
 * once. {@link parseConflist} accepts the same lists but stops at the first mistake. Keys at this level are
 * case-sensitive, as in the reference.
 */
export const ConflistSchema = z.looseObject({
  /** Schema of this file, for editors; not read. */
  $schema: z.optional(z.string()),
  /** Version of the specification that the plugins are called with; 0.1.0 when absent. */
  cniVersion: z.optional(z.string()),
  /** Versions to choose from; the highest one that the runtime supports is used. Since 1.1.0. */
  cniVersions: z.optional(z.array(z.string())),
  /** Name of the network, unique on a host: starts with a letter or digit, followed by letters, digits, "_", "." and "-". */
  name: z
    .string()
    .check(
      z.regex(
        /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/,
        'must start with a letter or digit and contain only letters, digits, "_", "." and "-"',
      ),
    ),
  /** True: CHECK does nothing for this network. Since 0.4.0. */
  disableCheck: z.optional(Switch),
  /** True: GC does nothing for this network. Since 1.1.0. */
  disableGC: z.optional(Switch),
  /** True: no further plugins are read from the directory next to this file that has the network's name. Since 1.1.0. */
  loadOnlyInlinedPlugins: z.optional(Switch),
  /** The plugins, in order of ADD. May be absent when all plugins are in files next to this one. */
  plugins: z.optional(z.array(ListedPlugin).check(z.minLength(1, 'must contain at least one plugin'))),
});
export type ConflistSchema = z.output<typeof ConflistSchema>;
