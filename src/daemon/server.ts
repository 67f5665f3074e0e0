// How does the daemon listen, decline, and stop?
import { existsSync, mkdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { ErrorCode } from '../cni/errors.ts';
import { sweepGivenUp } from '../files/unfinished.ts';
import { commandOf, parseRunRequest, toResponse } from './api.ts';
import { ownPlace } from './place.ts';
import { RUN_PATH, type RunReply, type RunRequest } from './protocol.ts';

/** What the server stands in front of. */
export interface Backend {
  /** Runs a command as its own process would; never rejects. The signal fires when nobody waits any more. */
  run(request: RunRequest, signal: AbortSignal, queueMs: number): Promise<RunReply>;
  /** Answers everything else that is asked over HTTP; undefined for what it does not know. */
  answer(request: Request, state: ServerState): Promise<Response | undefined>;
}

/** How much the daemon takes on. */
export interface ServerLimits {
  /** Requests that run at the same time. */
  readonly requests: number;
  /** Requests that wait for their turn; more are told to try again later. */
  readonly queue: number;
  /** Bytes of one request. */
  readonly bytes: number;
}

/** Limits that hold unless told otherwise. */
export const SERVER_LIMITS: ServerLimits = { requests: 64, queue: 1_024, bytes: 32 * 1024 * 1024 };

/** A server in numbers. */
export interface ServerState {
  /** Requests under way, those that wait for their turn, and those that were answered. */
  readonly running: number;
  readonly queued: number;
  readonly served: number;
}

/** A listening daemon. */
export interface Server {
  readonly state: ServerState;
  /** Puts other limits in force for the requests to come. */
  setLimits(limits: ServerLimits): void;
  /** Does work when it is its turn; undefined when too many wait already. */
  admit<T>(work: (queueMs: number) => Promise<T>): Promise<T> | undefined;
  /** Takes no new requests, answers those that it has, and ends. New clients run their chains themselves. */
  stop(): Promise<void>;
}

/**
 * Listens on a unix socket that only its owner may open. The name appears when the socket listens already, in place of
 * an earlier daemon's: no client meets a socket without a daemon behind it while one is replaced by another.
 */
export async function startServer(
  socketPath: string,
  backend: Backend,
  limits = SERVER_LIMITS,
): Promise<Server> {
  mkdirSync(dirname(socketPath), { recursive: true, mode: 0o700 });
  const place = await ownPlace();
  const gate = new Gate(limits);
  // Of daemons that were killed at this very point.
  const beside = `${basename(socketPath)}.`;
  sweepGivenUp(
    dirname(socketPath),
    name => name.startsWith(beside) && /^\d+$/.test(name.slice(beside.length)),
  );
  const fresh = `${socketPath}.${process.pid}`;
  rmSync(fresh, { force: true });
  const before = process.umask(0o177);
  const server = Bun.serve({
    unix: fresh,
    maxRequestBodySize: limits.bytes,
    async fetch(request, self) {
      // A chain takes as long as its links do.
      self.timeout(request, 0);
      const { pathname } = new URL(request.url);
      if (request.method === 'POST' && pathname === RUN_PATH) return runCommand(request);
      const body = request.method === 'POST' ? await request.text() : '';
      const asked = commandOf(request.method, pathname, body);
      if (asked) return 'args' in asked ? runVerb(asked.args, request.signal) : problem(400, asked.problem);
      return (await backend.answer(request, gate.state)) ?? problem(404, 'there is nothing under this path');
    },
    error: error => problem(500, error.message),
  });
  process.umask(before);
  renameSync(fresh, socketPath);
  const { ino } = statSync(socketPath);

  async function runCommand(http: Request): Promise<Response> {
    const request = parseRunRequest(await http.text());
    if (request === undefined) return problem(400, 'the body is not a request of a client');
    const same = JSON.stringify(request.place) === JSON.stringify(place);
    if (!same) return problem(409, 'the daemon is another program, or in another namespace');
    const reply = gate.admit(queueMs => backend.run(request, http.signal, queueMs));
    return Response.json(reply === undefined ? OVERLOADED : await reply);
  }

  async function runVerb(args: readonly string[], signal: AbortSignal): Promise<Response> {
    const request = { place, args, cwd: '/', env: process.env, key: crypto.randomUUID() };
    return toResponse((await gate.admit(queueMs => backend.run(request, signal, queueMs))) ?? OVERLOADED);
  }

  return {
    get state() {
      return gate.state;
    },
    setLimits(next) {
      gate.limits = next;
    },
    admit: work => gate.admit(work),
    async stop() {
      if (existsSync(socketPath) && statSync(socketPath).ino === ino) rmSync(socketPath, { force: true });
      await server.stop();
    },
  };
}

/** Lets a number of requests through, and a number wait. */
class Gate {
  limits: ServerLimits;
  readonly #waiting: (() => void)[] = [];
  #running = 0;
  #served = 0;

  constructor(limits: ServerLimits) {
    this.limits = limits;
  }

  get state(): ServerState {
    return { running: this.#running, queued: this.#waiting.length, served: this.#served };
  }

  /** Does the work when it is its turn; undefined when too many wait. */
  admit<T>(work: (queueMs: number) => Promise<T>): Promise<T> | undefined {
    const asked = performance.now();
    return this.enter()?.then(async leave => {
      try {
        return await work(performance.now() - asked);
      } finally {
        leave();
      }
    });
  }

  /** @returns a promise of the turn, to be ended by calling what it resolves to; undefined when too many wait */
  enter(): Promise<() => void> | undefined {
    const leave = (): void => {
      this.#running -= 1;
      this.#served += 1;
      this.#waiting.shift()?.();
    };
    const begin = (): (() => void) => {
      this.#running += 1;
      return leave;
    };
    if (this.#running < this.limits.requests) return Promise.resolve(begin());
    if (this.#waiting.length >= this.limits.queue) return undefined;
    return new Promise(resolve => this.#waiting.push(() => resolve(begin())));
  }
}

/** What is said to who comes when too many wait. */
export const BUSY = 'Cannot take the request: the daemon has too many that wait already; try again later';

const OVERLOADED: RunReply = {
  exitCode: 1,
  stdout: JSON.stringify({ code: ErrorCode.tryAgainLater, msg: BUSY }),
  stderr: `catena: ${BUSY}\n`,
};

function problem(status: number, reason: string): Response {
  return Response.json({ error: reason }, { status });
}
