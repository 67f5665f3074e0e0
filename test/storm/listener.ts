// Listens in many namespaces for one node, and answers each connection with its place.
//
// One line of standard input each: `listen <path of the namespace> <token>` or `close <token>`; a line is printed when it is
// done, `stray` where this process should be replaced. Each client gets the token and a sysctl of the namespace. It is a process of its own, since whatever stays of
// a visit would keep a namespace alive: that would then be this process's, not the driver's.

import { readdirSync, readFileSync, readlinkSync, writeSync } from 'node:fs';
import { closeNetns, inNetns, openNetns } from '../../src/sys/netns.ts';
import { LISTEN_PORT } from './networks.ts';

const servers = new Map<string, ReturnType<typeof listen>>();

for await (const line of console) {
  const [order, ...words] = line.split(' ');
  if (order === 'listen') {
    const [path = '', token = ''] = words;
    servers.set(
      token,
      visit(path, () => listen(path, token)),
    );
  } else {
    const [token = ''] = words;
    servers.get(token)?.stop(true);
    servers.delete(token);
    // The socket is closed at the end of a turn of the event loop.
    await Bun.sleep(1);
  }
  writeSync(1, hasStrays() ? 'stray\n' : 'done\n');
}

/** A thread that the engine started during a visit has stayed there; only the end of this process takes it away. */
function hasStrays(): boolean {
  const tasks = '/proc/self/task';
  return new Set(readdirSync(tasks).map(id => readlinkSync(`${tasks}/${id}/ns/net`))).size > 1;
}

function listen(path: string, token: string) {
  const socket = {
    open(client: Bun.Socket) {
      const somaxconn = visit(path, () => readFileSync('/proc/sys/net/core/somaxconn', 'utf8').trim());
      client.end(JSON.stringify({ token, somaxconn }));
    },
    data() {},
  };
  return Bun.listen({ hostname: '::', port: LISTEN_PORT, socket });
}

function visit<T>(path: string, work: () => T extends PromiseLike<unknown> ? never : T) {
  const netns = openNetns(path);
  try {
    return inNetns(netns, work);
  } finally {
    closeNetns(netns);
  }
}
