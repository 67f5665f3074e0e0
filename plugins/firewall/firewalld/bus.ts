// How does the plugin talk to firewalld? The only importer of dbus-native, which is not loaded without firewalld.
import type { DBusError, MessageBus } from 'dbus-native';

/** Where the system bus listens unless `DBUS_SYSTEM_BUS_ADDRESS` says otherwise (D-Bus specification, "System message bus"). */
const DEFAULT_ADDRESS = 'unix:path=/var/run/dbus/system_bus_socket';
const NAME = 'org.fedoraproject.FirewallD1';
/** firewalld takes tens of milliseconds for a change, and longer during a reload. */
const REPLY_DEADLINE_MS = 15_000;

/** The requests to firewalld. Zones hold addresses: packets from those addresses are subject to the zone's rules. */
export interface Firewalld {
  /** Same as: `firewall-cmd --get-zones` */
  listZones(): Promise<string[]>;
  /** The zone that has the source; undefined if none has. Same as: `firewall-cmd --get-zone-of-source <source>` */
  findZone(source: string): Promise<string | undefined>;
  /** Ignored if the zone already has it. Same as: `firewall-cmd --zone <zone> --add-source <source>` */
  addSource(zone: string, source: string): Promise<void>;
  /** Ignored if missing. Same as: `firewall-cmd --zone <zone> --remove-source <source>` */
  removeSource(zone: string, source: string): Promise<void>;
}

/**
 * Runs a function while the bus is open, or another one when firewalld is not running. Does not start firewalld.
 * @throws Error with firewalld's message
 */
export async function withFirewalld<T>(
  work: (firewalld: Firewalld) => Promise<T>,
  otherwise: () => T | Promise<T>,
): Promise<T> {
  const bus = await openBus();
  if (bus === undefined) return otherwise();
  try {
    return (await hasOwner(bus)) ? await work(speakTo(bus)) : await otherwise();
  } finally {
    bus.connection.end();
  }
}

/** Undefined when nothing listens there. */
async function openBus(): Promise<MessageBus | undefined> {
  const busAddress = process.env.DBUS_SYSTEM_BUS_ADDRESS || DEFAULT_ADDRESS;
  const { createClient } = await import('dbus-native');
  const bus = createClient({ busAddress, timeout: REPLY_DEADLINE_MS });
  const outcome = await new Promise<'open' | Error>(resolve => {
    const deadline = setTimeout(() => resolve(new Error('it does not reply')), REPLY_DEADLINE_MS);
    const settle = (result: 'open' | Error): void => {
      clearTimeout(deadline);
      resolve(result);
    };
    bus.connection.once('connect', () => settle('open'));
    // Kept for the lifetime of the connection: without a listener, an error would end the process.
    bus.connection.on('error', settle);
  });
  if (outcome === 'open') return bus;
  bus.connection.end();
  const { code } = outcome as { code?: unknown };
  if (code === 'ENOENT' || code === 'ECONNREFUSED') return undefined;
  throw new Error(`Cannot open the system bus at "${busAddress}": ${outcome.message}`, { cause: outcome });
}

/** Any other call would make the bus start firewalld. */
async function hasOwner(bus: MessageBus): Promise<boolean> {
  const body = { member: 'NameHasOwner', signature: 's', body: [NAME] };
  return (await bus.invokeDbus<boolean>(body)) === true;
}

function speakTo(bus: MessageBus): Firewalld {
  const call = async <T>(
    action: string,
    member: string,
    args: readonly string[],
    tolerated = '',
  ): Promise<T> => {
    try {
      return await bus.invoke<T>({
        destination: NAME,
        path: '/org/fedoraproject/FirewallD1',
        interface: `${NAME}.zone`,
        member,
        // Without arguments, the signature must be absent.
        ...(args.length ? { signature: 's'.repeat(args.length), body: [...args] } : {}),
      });
    } catch (cause) {
      const { message } = cause as DBusError;
      if (tolerated && message.includes(tolerated)) return undefined as T;
      throw new Error(`Cannot ${action}: firewalld replied ${message}`, { cause });
    }
  };
  const words = (zone: string, source: string): string => `source ${source} of zone "${zone}"`;
  return {
    listZones: () => call('list zones', 'getZones', []),
    findZone: async source =>
      (await call<string>(`find the zone of ${source}`, 'getZoneOfSource', [source])) || undefined,
    addSource: (zone, source) =>
      call(`add ${words(zone, source)}`, 'addSource', [zone, source], 'ZONE_ALREADY_SET'),
    removeSource: (zone, source) =>
      call(`remove ${words(zone, source)}`, 'removeSource', [zone, source], 'UNKNOWN_SOURCE'),
  };
}
