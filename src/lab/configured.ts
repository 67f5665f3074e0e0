// Which capability arguments does a chain get in a lab, which of them each plugin, and which a second container?
import type { Conflist } from '../chain/config/conflist.ts';
import type { Attachment } from '../chain/run/runtime.ts';
import { attempt } from '../cni/errors.ts';
import { objectIn } from '../cni/invocation.ts';
import { isObject, type JsonObject } from '../cni/json.ts';
import { parseMac, renderMac } from '../net/interface.ts';

/** A configured plugin: its entry of the conflist, and its capability arguments. */
export interface ConfiguredPlugin {
  readonly type: string;
  readonly conf: JsonObject;
  readonly runtimeConfig: JsonObject;
}

/** The lab's offer to plugins that declare the capability, unless the caller specifies otherwise. */
const OFFERS: Readonly<Record<string, unknown>> = {
  portMappings: [
    { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
    { hostPort: 8053, containerPort: 53, protocol: 'udp' },
  ],
  // Bits per second, and bits.
  bandwidth: { ingressRate: 20e6, ingressBurst: 512e3, egressRate: 10e6, egressBurst: 512e3 },
};

const RATE_KEYS = ['ingressRate', 'egressRate'];

/** Capability arguments for a conflist: the lab's offers for declared capabilities, overridden by the given arguments. */
export function offerCapabilities(list: Conflist, given: JsonObject): JsonObject {
  const offered = Object.entries(OFFERS).filter(([name]) =>
    list.plugins.some(({ capabilities, conf }) => {
      // Rates in the file are the ones that its author wants to try.
      const isFixed = name === 'bandwidth' && RATE_KEYS.some(key => conf[key] !== undefined);
      return capabilities[name] === true && !isFixed;
    }),
  );
  return { ...Object.fromEntries(offered), ...given };
}

/** What a caller gives beside the list. */
export type Arguments = Pick<Attachment, 'args' | 'capabilityArgs'>;

/** The arguments for a second container: the same, but with host ports and a hardware address that the first one does not have. */
export function forNeighbour({ args = [], capabilityArgs = {} }: Arguments): Arguments {
  const { portMappings, mac } = capabilityArgs;
  return {
    args: args.map(([key, text]) => [key, key === 'MAC' ? otherMac(text) : text]),
    capabilityArgs: {
      ...capabilityArgs,
      ...(Array.isArray(portMappings) ? { portMappings: withOtherPorts(portMappings) } : {}),
      ...(typeof mac === 'string' ? { mac: otherMac(mac) } : {}),
    },
  };
}

/** The list for a second container: the same, but where it gives every container one hardware address, with another one. */
export function listForNeighbour(list: Conflist): Conflist {
  const other = (conf: JsonObject): JsonObject => {
    const { mac, args } = conf;
    const own = typeof mac === 'string' ? { ...conf, mac: otherMac(mac) } : conf;
    if (!isObject(args) || !isObject(args.cni) || typeof args.cni.mac !== 'string') return own;
    return { ...own, args: { ...args, cni: { ...args.cni, mac: otherMac(args.cni.mac) } } };
  };
  const plugins = list.plugins.map(one => ({ ...one, conf: other(one.conf) }));
  return {
    ...list,
    plugins,
    source: JSON.stringify({ ...objectIn(list.source), plugins: plugins.map(({ conf }) => conf) }),
  };
}

function withOtherPorts(mappings: readonly unknown[]): unknown[] {
  const given = mappings.filter(isObject);
  const taken = new Set(given.map(({ hostPort }) => hostPort));
  const moved = new Map<unknown, number>();
  for (const port of [...taken].filter((one): one is number => typeof one === 'number' && one > 0)) {
    let other = port;
    do other = (other % PORT_MAX) + 1;
    while (taken.has(other) && other !== port);
    moved.set(port, other);
    taken.add(other);
  }
  return given.map(one => ({ ...one, hostPort: moved.get(one.hostPort) ?? one.hostPort }));
}

const PORT_MAX = 65_535;

/** Differs in the last bit. A text that is no hardware address is the plugin's to refuse. */
function otherMac(text: string): string {
  const bytes = attempt(() => parseMac(text));
  return bytes ? renderMac(bytes.with(-1, (bytes.at(-1) ?? 0) ^ 1)) : text;
}

export function configurePlugins(list: Conflist, capabilities: JsonObject): ConfiguredPlugin[] {
  return list.plugins.map(({ type, conf, capabilities: declared }) => ({
    type,
    conf,
    runtimeConfig: Object.fromEntries(
      Object.entries(capabilities).filter(([name]) => declared[name] === true),
    ),
  }));
}
