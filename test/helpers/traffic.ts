// Does traffic really pass, which address does the other side see, and how fast is it?

import path from 'node:path';
import { deadline } from './deadline.ts';
import { lineReader, within } from './lines.ts';
import type { Lab, Namespace } from './netns.ts';

const SERVER = path.resolve(import.meta.dir, '../fixtures/echo-server.ts');
const CLIENT = path.resolve(import.meta.dir, '../fixtures/client.ts');

const CONVERSATION = path.resolve(import.meta.dir, '../fixtures/conversation.ts');

/** What a server does with a connection: echo, discard everything, or send endlessly. */
export type ServerRole = 'echo' | 'sink' | 'source';

/** A server inside a namespace. */
export interface Server {
  readonly port: number;
  /** The next line it prints: what a `sink` measured. */
  nextLine(): Promise<string>;
  stop(): Promise<void>;
}

/** The reply of an echo server: our own text, and the addresses of both ends as it saw them. */
export interface EchoReply {
  readonly text: string;
  readonly peer: string;
  readonly peerPort: number;
  readonly local: string;
}

/** Starts a server and waits until it listens (on every address unless one is given). */
export async function startServer(
  lab: Lab,
  ns: Namespace,
  options: { protocol: 'tcp' | 'udp'; port: number; address?: string; role?: ServerRole; seconds?: number },
): Promise<Server> {
  const argv = [
    options.protocol,
    options.role ?? 'echo',
    options.address ?? '::',
    options.port,
    options.seconds ?? 2,
  ];
  const child = lab.start(ns, [process.execPath, SERVER, ...argv.map(String)]);
  const lines = lineReader(child.stdout);
  const first = await within(deadline(10_000), `server on port ${options.port}`, lines());
  if (first !== 'ready') {
    throw new Error(`Cannot start a server on port ${options.port}: ${first}${await child.stderr.text()}`);
  }
  return {
    port: options.port,
    nextLine: lines,
    async stop() {
      child.kill('SIGKILL');
      await child.exited;
    },
  };
}

/** Sends one text to an echo server; `undefined` if there is no reply in time (default 2,000 ms, more on a busy machine). */
export async function echo(
  lab: Lab,
  from: Namespace,
  options: { protocol: 'tcp' | 'udp'; address: string; port: number; text?: string; timeoutMs?: number },
): Promise<EchoReply | undefined> {
  const timeoutMs = deadline(options.timeoutMs ?? 2_000);
  const argv = ['echo', options.protocol, options.address, options.port, options.text ?? 'hello', timeoutMs];
  const reply = await lab.run(from, [process.execPath, CLIENT, ...argv.map(String)], {
    timeoutMs: timeoutMs + 10_000,
  });
  return reply.exitCode === 0 ? (JSON.parse(reply.stdout) as EchoReply) : undefined;
}

/** A TCP connection that stays open until the test ends it. */
export interface Conversation {
  /** Sends a line and returns the reply; returns a message if the connection is closed, or nothing arrives in time. */
  say(line: string): Promise<string>;
  end(): Promise<void>;
}

/** Starts a server in `to` and connects to it from `from`, by the address and port under which `from` can reach it. */
export async function converse(
  lab: Lab,
  way: { from: Namespace; to: Namespace; listen: number; address: string; port: number },
): Promise<Conversation> {
  const server = lab.start(way.to, [process.execPath, CONVERSATION, 'serve', String(way.listen)]);
  await within(deadline(10_000), 'server of a conversation', lineReader(server.stdout)());
  const argv = [process.execPath, CONVERSATION, 'talk', way.address, String(way.port)];
  const client = Bun.spawn(['nsenter', `--net=${way.from.path}`, '--', ...argv], {
    stdin: 'pipe',
    stdout: 'pipe',
  });
  const nextLine = lineReader(client.stdout);
  const first = await within(deadline(10_000), 'connection of a conversation', nextLine());
  if (first !== 'connected') throw new Error(`Cannot begin a conversation: ${first}`);
  return {
    async say(line) {
      client.stdin.write(`${line}\n`);
      client.stdin.flush();
      return await within(deadline(10_000), 'answer in a conversation', nextLine());
    },
    async end() {
      client.kill('SIGKILL');
      await client.exited;
    },
  };
}

/** Sends texts to many echo servers at once; `undefined` for those that did not reply in time. */
export async function echoAll(
  lab: Lab,
  from: Namespace,
  questions: readonly { protocol: 'tcp' | 'udp'; address: string; port: number; text: string }[],
  timeoutMs: number,
): Promise<(EchoReply | undefined)[]> {
  const all = JSON.stringify(questions.map(question => ({ ...question, timeoutMs })));
  const { stdout, stderr } = await lab.run(from, [process.execPath, CLIENT, 'ask', all], {
    timeoutMs: timeoutMs + 10_000,
  });
  if (stdout === '') throw new Error(`Cannot ask ${questions.length} servers: ${stderr}`);
  return (JSON.parse(stdout) as (EchoReply | null)[]).map(reply => reply ?? undefined);
}

/**
 * Bytes per second from one namespace to another over TCP, counted by the receiver after the first second, which an initial burst
 * would distort. `connect` says which side opens the connection (default: the sender).
 */
export async function measureRate(
  lab: Lab,
  options: {
    from: Namespace;
    to: Namespace;
    address: string;
    port?: number;
    seconds?: number;
    connect?: 'sender' | 'receiver';
  },
): Promise<number> {
  const { from, to, address, port = 5201, seconds = 2, connect = 'sender' } = options;
  const [client, listener, role] =
    connect === 'sender' ? [from, to, 'sink' as const] : [to, from, 'source' as const];
  const server = await startServer(lab, listener, { protocol: 'tcp', role, port, seconds });
  try {
    const verb = connect === 'sender' ? 'send' : 'receive';
    const argv = [process.execPath, CLIENT, verb, 'tcp', address, String(port), String(seconds)];
    const limitMs = seconds * 1_000 + 20_000;
    const counted =
      connect === 'sender' ? within(deadline(limitMs), 'rate measurement', server.nextLine()) : undefined;
    const { stdout, stderr, exitCode } = await lab.run(client, argv, { timeoutMs: limitMs });
    if (exitCode !== 0) throw new Error(`Cannot measure the rate to "${address}": ${stderr}`);
    return (JSON.parse((await counted) ?? stdout) as { bytesPerSecond: number }).bytesPerSecond;
  } finally {
    await server.stop();
  }
}

/** Measures up to three times: a busy machine may starve a transfer, or read late what arrived early, but not every time. */
export async function steadily(
  measure: () => Promise<number>,
  isFine: (value: number) => boolean,
): Promise<number> {
  let value = await measure();
  for (let again = 0; again < 2 && !isFine(value); again++) value = await measure();
  return value;
}

/** Whether an address answers one of three echo requests. */
export async function ping(
  lab: Lab,
  from: Namespace,
  address: string,
  ...options: string[]
): Promise<boolean> {
  const seconds = (deadline(1_000) / 1_000).toFixed(1);
  const argv = ['ping', '-n', '-q', '-c', '1', '-W', seconds, ...options, address];
  for (let attempt = 0; attempt < 3; attempt++) {
    if ((await lab.run(from, argv, { timeoutMs: 10_000 })).exitCode === 0) return true;
  }
  return false;
}
