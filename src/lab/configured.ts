// Which capability arguments does a chain get in a lab, and which of them each plugin?
import type { Conflist } from '../chain/config/conflist.ts';
import type { JsonObject } from '../cni/json.ts';

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

/** The arguments for a second container: the same, but with other host ports. */
export function forNeighbour(capabilities: JsonObject): JsonObject {
  const { portMappings } = capabilities;
  if (!Array.isArray(portMappings)) return capabilities;
  const moved = portMappings.map(mapping => ({ ...mapping, hostPort: Number(mapping?.hostPort) + 1 }));
  return { ...capabilities, portMappings: moved };
}

/** Each plugin with the arguments that it receives. */
export function configurePlugins(list: Conflist, capabilities: JsonObject): ConfiguredPlugin[] {
  return list.plugins.map(({ type, conf, capabilities: declared }) => ({
    type,
    conf,
    runtimeConfig: Object.fromEntries(
      Object.entries(capabilities).filter(([name]) => declared[name] === true),
    ),
  }));
}
