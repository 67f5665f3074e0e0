// Which capability arguments do `-p`, `--rate`, `--ip`, `--mac` and `--cap` of a command line make?
import { attempt } from '../cni/errors.ts';
import { defined, type JsonObject, parseObject } from '../cni/json.ts';
import { parseMac, renderMac } from '../net/interface.ts';
import { type CommandCall, type CommandOption, UsageError, value, values } from './command.ts';

/** What a person types; `--cap` has everything else that plugins declare. */
export const CAPABILITY_OPTIONS = {
  port: values(
    '<ports>',
    'port of the host and port of the container, repeatable: 8080:80, 127.0.0.1:53:53/udp',
    { short: 'p' },
  ),
  rate: value('<rate>', 'limit in bits per second, 10M; 10M/2M: towards the container, and from it'),
  ip: values('<address>', 'address for the container, repeatable'),
  mac: value('<address>', 'hardware address for the interface'),
} as const satisfies Readonly<Record<string, CommandOption>>;

/** `[address:]hostPort[:containerPort][/protocol]`, an IPv6 address in brackets, as podman and docker have it. */
const PORT =
  /^(?:(?<hostIP>\[[^\]]+\]|[^:[\]]+):(?=\d+:))?(?<hostPort>\d+)(?::(?<containerPort>\d+))?(?:\/(?<protocol>\w+))?$/;
const PROTOCOLS = ['tcp', 'udp', 'sctp'];
const PORT_MAX = 65_535;

const RATE = /^(?<number>\d+(?:\.\d+)?)(?<unit>[kMGT]?)(?:bit)?$/;
const UNITS: Readonly<Record<string, number>> = { '': 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };

/** The reference's bandwidth wants a burst beside each rate: 25 ms of it, and at least two frames, as ours has without one. */
const BURST_SECONDS = 0.025;
const BURST_LEAST_BITS = 2 * 1_514 * 8;

/**
 * What the options ask for. Each one replaces its capability in the JSON text.
 * @param text that of `--cap`, or of the environment
 * @throws UsageError for a value that cannot be read, CniError 6 for text that is no JSON object
 */
export function capabilitiesOf(call: CommandCall, text = call.text('cap') ?? ''): JsonObject {
  const given = text === '' ? {} : parseObject(text, 'capability arguments (CAP_ARGS or --cap)');
  const [ports, ips] = [call.texts('port'), call.texts('ip')];
  const [rate, mac] = [call.text('rate'), call.text('mac')];
  return {
    ...given,
    ...defined({
      portMappings: ports.length > 0 ? ports.map(readPort) : undefined,
      bandwidth: rate === undefined ? undefined : readRates(rate),
      ips: ips.length > 0 ? ips : undefined,
      mac: mac === undefined ? undefined : readMac(mac),
    }),
  };
}

function readPort(text: string): JsonObject {
  const { hostIP, hostPort = '', containerPort = hostPort, protocol = 'tcp' } = PORT.exec(text)?.groups ?? {};
  const ports = [hostPort, containerPort].map(Number);
  const wrong = (why: string) =>
    new UsageError(
      `Cannot use --port ${text}: ${why}, as in 8080:80, 127.0.0.1:8080:80/udp or [2001:db8::1]:8080:80`,
    );
  if (hostPort === '') throw wrong('expected [address:]port[:port][/protocol]');
  if (!ports.every(port => port >= 1 && port <= PORT_MAX)) throw wrong(`ports are 1 to ${PORT_MAX}`);
  if (!PROTOCOLS.includes(protocol.toLowerCase())) throw wrong(`protocols are ${PROTOCOLS.join(', ')}`);
  return {
    hostPort: Number(hostPort),
    containerPort: Number(containerPort),
    protocol: protocol.toLowerCase(),
    ...defined({ hostIP: hostIP?.replace(/^\[|\]$/g, '') }),
  };
}

function readRates(text: string): JsonObject {
  const [towards = '', from = towards, ...more] = text.split('/').filter(part => part !== 's');
  const [ingressRate, egressRate] = [towards, from].map(part => {
    const { number, unit = '' } = RATE.exec(part)?.groups ?? {};
    if (number === undefined || more.length > 0)
      throw new UsageError(
        `Cannot use --rate ${text}: expected bits per second, such as 10M, 500k or 10M/2M`,
      );
    return Math.round(Number(number) * (UNITS[unit] ?? 1));
  });
  const burst = (rate = 0) => (rate === 0 ? 0 : Math.max(Math.round(rate * BURST_SECONDS), BURST_LEAST_BITS));
  return { ingressRate, ingressBurst: burst(ingressRate), egressRate, egressBurst: burst(egressRate) };
}

function readMac(text: string): string {
  const mac = attempt(() => renderMac(parseMac(text)));
  if (mac !== undefined) return mac;
  throw new UsageError(`Cannot use --mac ${text}: expected a hardware address, such as 02:42:0a:58:00:02`);
}
