// What does a runtime offer the links, when there is no runtime?
import type { Conflist } from '../chain/conflist.ts';
import type { JsonObject } from '../cni/json.ts';
import type { ConfiguredLink } from './probes/probe.ts';

/** What the lab offers links that declare the capability, unless the caller says otherwise. */
const OFFERS: Readonly<Record<string, unknown>> = {
  portMappings: [
    { hostPort: 8080, containerPort: 80, protocol: 'tcp' },
    { hostPort: 8053, containerPort: 53, protocol: 'udp' },
  ],
  // Bits per second, and bits.
  bandwidth: { ingressRate: 20e6, ingressBurst: 512e3, egressRate: 10e6, egressBurst: 512e3 },
};

const RATE_KEYS = ['ingressRate', 'egressRate'];

/** Capability arguments for a list: what its links declare and the lab can offer, and over it what was given. */
export function offerCapabilities(list: Conflist, given: JsonObject): JsonObject {
  const offered = Object.entries(OFFERS).filter(([name]) =>
    list.plugins.some(({ capabilities, conf }) => {
      // Rates in the file are what its author wants to see tried.
      const settled = name === 'bandwidth' && RATE_KEYS.some(key => conf[key] !== undefined);
      return capabilities[name] === true && !settled;
    }),
  );
  return { ...Object.fromEntries(offered), ...given };
}

/** The arguments for a second container: the same, on other ports of the host. */
export function forNeighbour(capabilities: JsonObject): JsonObject {
  const { portMappings } = capabilities;
  if (!Array.isArray(portMappings)) return capabilities;
  const moved = portMappings.map(mapping => ({ ...mapping, hostPort: Number(mapping?.hostPort) + 1 }));
  return { ...capabilities, portMappings: moved };
}

/** Each link with the arguments that reach it. */
export function configureLinks(list: Conflist, capabilities: JsonObject): ConfiguredLink[] {
  return list.plugins.map(({ type, conf, capabilities: declared }) => ({
    type,
    conf,
    runtimeConfig: Object.fromEntries(
      Object.entries(capabilities).filter(([name]) => declared[name] === true),
    ),
  }));
}
