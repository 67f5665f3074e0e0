// From where does the daemon learn that something on this host has changed?
import { type FSWatcher, statSync, watch } from 'node:fs';
import {
  NFT_GROUPS,
  openMonitor,
  openPeerMonitor,
  PEER_GROUPS,
  ROUTE_FILTER,
  ROUTE_GROUPS,
} from '../netlink/monitor.ts';
import { IFF_UP } from '../netlink/rtnl/link.ts';
import { NETLINK_NETFILTER, NETLINK_ROUTE } from '../netlink/socket.ts';
import { Tables } from '../netlink/tables.ts';
import { DeviceHints, type Hint, type HostDevice, hintsOfRules } from './hints.ts';

/** Who is told. */
interface SourceEvents {
  hints(hints: readonly Hint[]): void;
  /** Notifications were lost: anything may have changed. */
  lost(why: string): void;
  /** Notifications cannot be received at present, which is tried again; `lost` follows. */
  interrupted(why: string): void;
  /** What changed inside namespaces of containers was not heard for a while. */
  missed(why: string): void;
  /** A file in the directory of network configurations has changed. */
  configured(): void;
}

/**
 * Listens on netlink sockets of this host's namespace, and to the configuration directory. A network namespace of a pod has no
 * socket: it would keep the namespace alive, and cost a descriptor and a buffer each. One socket hears of all of them.
 * @returns a function that stops this
 * @throws SystemError if the sockets cannot be opened
 */
export function openSources(confDir: string, events: SourceEvents): () => void {
  const hints = new DeviceHints([]);
  const tell = (read: () => readonly Hint[]): void => {
    let found: readonly Hint[];
    try {
      found = read();
    } catch (error) {
      events.lost((error as Error).message);
      return;
    }
    if (found.length > 0) events.hints(found);
  };
  const devices = openMonitor(
    NETLINK_ROUTE,
    ROUTE_GROUPS,
    {
      changed: messages => tell(() => hints.hintsOf(messages)),
      lost(why) {
        try {
          hints.reset(listDevices());
        } catch {
          // Every attachment is checked now.
          hints.reset(undefined);
        }
        events.lost(why);
      },
      interrupted: events.interrupted,
    },
    { filter: ROUTE_FILTER },
  );
  const rules = openMonitor(NETLINK_NETFILTER, NFT_GROUPS, {
    changed: messages => tell(() => hintsOfRules(messages)),
    lost: events.lost,
    interrupted: events.interrupted,
  });
  // After the socket: a device that is made in between is listed, and reported once more.
  hints.reset(listDevices());
  const closePeers = listenInside(hints, events);
  const closeFiles = watchDirectory(confDir, events.configured);
  return () => {
    closePeers();
    devices.close();
    rules.close();
    closeFiles();
  };
}

/** Listens to the namespaces that devices of this host lead to. @returns a function that stops this */
function listenInside(hints: DeviceHints, events: SourceEvents): () => void {
  const all = (why: string): Hint => ({ of: 'all', isLikely: false, why });
  try {
    return openPeerMonitor(NETLINK_ROUTE, PEER_GROUPS, ROUTE_FILTER, {
      changed(notifications) {
        let found: readonly Hint[];
        try {
          found = hints.hintsInside(notifications);
        } catch (error) {
          found = [all((error as Error).message)];
        }
        if (found.length > 0) events.hints(found);
      },
      lost: events.missed,
    });
  } catch {
    // The kernel is too old for this: the timer finds what changes inside.
    return () => {};
  }
}

function listDevices(): HostDevice[] {
  return new Tables().links.map(({ index, name, flags, master, peer, attrs }) => {
    return { index, name, isUp: (flags & IFF_UP) !== 0, master, peer, nsid: attrs.linkNetnsId };
  });
}

/** How often a directory is looked for that does not exist, or has been replaced by another one. */
const LOOK_EVERY_MS = 2_000;

/** Watches the directory of that path, whichever it is at the time. @returns a function that stops this */
function watchDirectory(dir: string, changed: () => void): () => void {
  let watcher: FSWatcher | undefined;
  let [watched, seen] = ['', identityOf(dir)];
  const watchAnew = (now: string): void => {
    watcher?.close();
    watcher = undefined;
    watched = '';
    if (now === '') return;
    try {
      watcher = watch(dir, { persistent: false }, changed);
      watcher.on('error', () => {
        watched = '';
      });
      watched = now;
    } catch {
      // It has just been removed, or the limit of watches is reached: tried again.
    }
  };
  const look = (): void => {
    const now = identityOf(dir);
    if (now !== watched) watchAnew(now);
    if (now === seen) return;
    seen = now;
    changed();
  };
  look();
  const timer = setInterval(look, LOOK_EVERY_MS);
  timer.unref();
  return () => {
    clearInterval(timer);
    watcher?.close();
  };
}

/** Differs for another directory at the same path; empty if there is none. */
function identityOf(dir: string): string {
  const { dev, ino, birthtimeMs } = statSync(dir, { throwIfNoEntry: false }) ?? {};
  return ino === undefined ? '' : `${dev} ${ino} ${birthtimeMs}`;
}
