// Which of a container's published ports cannot be reached, and from where?

import type { Lab, Namespace, Outside } from './netns.ts';
import { echo, startServer } from './traffic.ts';

/** A port of the host that leads to one of a container. */
export interface Published {
  readonly protocol: 'tcp' | 'udp';
  readonly hostPort: number;
  readonly containerPort: number;
}

/** One of each protocol. */
export const PUBLISHED: readonly Published[] = [
  { protocol: 'tcp', hostPort: 8080, containerPort: 80 },
  { protocol: 'udp', hostPort: 5353, containerPort: 53 },
];

/**
 * Starts a server behind each port, asks it from everywhere at the addresses of the host, and ends the servers.
 *
 * @returns a line for each way that does not lead there; from outside, the server must see the outside's address
 */
export async function findUnreachable(
  lab: Lab,
  options: {
    container: Namespace;
    outside: Outside;
    /** More namespaces to ask from, by what a reader calls them. */
    from?: Readonly<Record<string, Namespace>>;
    families?: readonly ('v4' | 'v6')[];
    ports?: readonly Published[];
  },
): Promise<string[]> {
  const { container, outside, families = ['v4'], ports = PUBLISHED } = options;
  const askers = { host: lab.host, outside, 'the container itself': container, ...options.from };
  const servers = await Promise.all(
    ports.map(({ protocol, containerPort }) =>
      startServer(lab, container, { protocol, port: containerPort }),
    ),
  );
  try {
    const ways = Object.entries(askers).flatMap(([name, asker]) =>
      families.flatMap(family =>
        ports.map(({ protocol, hostPort }) => ({ name, asker, family, protocol, hostPort })),
      ),
    );
    const answers = await Promise.all(
      ways.map(async ({ name, asker, family, protocol, hostPort }) => {
        const way = `${protocol} port ${hostPort} of ${outside.hostAddress[family]} from ${name}`;
        const to = { protocol, address: outside.hostAddress[family], port: hostPort, text: way };
        const reply = await echo(lab, asker, { ...to, timeoutMs: 5_000 });
        if (reply?.text !== way) return `${way}: no answer`;
        if (asker === outside && reply.peer !== outside.address[family])
          return `${way}: it saw ${reply.peer}`;
        return undefined;
      }),
    );
    return answers.filter(answer => answer !== undefined);
  } finally {
    await Promise.all(servers.map(server => server.stop()));
  }
}

/** Which of the ports still lead somewhere, asked from outside. */
export async function findReachable(
  lab: Lab,
  outside: Outside,
  ports: readonly Published[] = PUBLISHED,
): Promise<string[]> {
  const answers = await Promise.all(
    ports.map(async ({ protocol, hostPort }) => {
      const to = { protocol, address: outside.hostAddress.v4, port: hostPort, timeoutMs: 500 };
      return (await echo(lab, outside, to)) && `${protocol} port ${hostPort}`;
    }),
  );
  return answers.filter(answer => answer !== undefined);
}
