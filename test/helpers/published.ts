// Which of a container's published ports cannot be reached, and from where?

import { deadline } from './deadline.ts';
import type { Lab, Namespace, Outside } from './netns.ts';
import { echoAll, startServer } from './traffic.ts';

/** A port of the host that is forwarded to a container. */
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
 * Starts a server behind each port, queries it from everywhere at the host's addresses, and ends the servers.
 * @returns a line for each path that fails; from outside, the server must see the outside's address
 */
export async function findUnreachable(
  lab: Lab,
  options: {
    container: Namespace;
    outside: Outside;
    /** Further namespaces to query from, by human-readable name. */
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
    const answers = await Promise.all(
      Object.entries(askers).map(async ([name, asker]) => {
        const questions = families.flatMap(family =>
          ports.map(({ protocol, hostPort: port }) => {
            const address = outside.hostAddress[family];
            return {
              protocol,
              address,
              port,
              text: `${protocol} port ${port} of ${address} from ${name}`,
              family,
            };
          }),
        );
        const replies = await echoAll(lab, asker, questions, deadline(5_000));
        return questions.map(({ text, family }, i) => {
          const reply = replies[i];
          if (reply?.text !== text) return `${text}: no answer`;
          const isRight = asker !== outside || reply.peer === outside.address[family];
          return isRight ? undefined : `${text}: it saw ${reply.peer}`;
        });
      }),
    );
    return answers.flat().filter(answer => answer !== undefined);
  } finally {
    await Promise.all(servers.map(server => server.stop()));
  }
}

/** Which of the ports are still reachable from outside. */
export async function findReachable(
  lab: Lab,
  outside: Outside,
  ports: readonly Published[] = PUBLISHED,
): Promise<string[]> {
  const questions = ports.map(({ protocol, hostPort: port }) => {
    return { protocol, address: outside.hostAddress.v4, port, text: `${protocol} port ${port}` };
  });
  const replies = await echoAll(lab, outside, questions, deadline(500));
  return questions.filter((_, i) => replies[i]).map(({ text }) => text);
}
