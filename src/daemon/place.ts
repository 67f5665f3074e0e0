// What must be the same for the daemon to stand in for a client?
import type { Place } from './protocol.ts';

/** The executable and the namespaces of this process. */
export async function ownPlace(): Promise<Place> {
  const [executable, network, mount] = await Promise.all([
    identityOf('/proc/self/exe'),
    identityOf('/proc/self/ns/net'),
    identityOf('/proc/self/ns/mnt'),
  ]);
  return { executable, network, mount };
}

async function identityOf(path: string): Promise<string> {
  const { dev, ino } = await Bun.file(path).stat();
  return `${dev}:${ino}`;
}
