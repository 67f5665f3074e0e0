// How do clients of coil's service reach us? (gRPC on a unix socket of its own)
//
// grpc-js serves it, because it measured better than Connect. The measurement: `Add` with a handler that does nothing, both
// compiled like our executable, on a unix socket, for a grpc-js client on Node 20; medians of four interleaved runs of 500 calls
// each, two cores, November 2026 (grpc-js 1.14.7 | connect-node 2.1.2 with protobuf-es 2.17.0; Bun 1.4.5):
//
//   one call at a time                     0.77 ms   | 1.04 ms
//   eight at a time, each                  1.84 ms   | 3.55 ms
//   calls per second, eight at a time      4,030     | 2,070
//   memory at rest (an empty program: 23)  43 MiB    | 39 MiB
//   after 5,000 calls, and 3 s later       59, 59    | 71, 57 MiB
//   added to the executable                4.2 MB    | 3.3 MB
//   loaded in                              12.6 ms   | 8.8 ms
//   CNIError in the status                 arrives   | arrives
//   message of a failure                   as it is  | with "%3A" for ":", which this client leaves there
//   health, reflection                     packages  | none (connect-es #797, #507)
//
// Health and reflection are our own implementations, which share the schemas of `grpc/`.
import { chmodSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import {
  Server,
  ServerCredentials,
  ServerInterceptingCall,
  type ServerInterceptor,
  status,
} from '@grpc/grpc-js';
import type { Invocation } from '../cni/invocation.ts';
import { sweepGivenUp } from '../files/put-file.ts';
import { serviceOf } from './grpc/schema.ts';
import { type CallRunner, serveCni, serveHealth, serveReflection } from './grpc/services.ts';

/** The service that does the work. */
const CNI_SERVICE = 'pkg.cnirpc.CNI';

const HEALTH_SERVICE = 'grpc.health.v1.Health';
const REFLECTION_SERVICES = [
  'grpc.reflection.v1.ServerReflection',
  'grpc.reflection.v1alpha.ServerReflection',
];

const GRPC_SERVICES: readonly string[] = [CNI_SERVICE, HEALTH_SERVICE, ...REFLECTION_SERVICES];

export function grpcMethods(): GrpcMethod[] {
  return GRPC_SERVICES.flatMap(service =>
    Object.entries(serviceOf(service)).map(([method, { requestStream, responseStream }]) => {
      return { type: typeOf(requestStream, responseStream), service, method };
    }),
  );
}

interface GrpcOptions {
  readonly socketPath: string;
  readonly call: CallRunner;
  /** Environment that calls inherit. */
  readonly env: Invocation['env'];
  readonly observer: GrpcObserver;
  /** A real attempt to do something; without it the server always counts as healthy. */
  readonly isHealthy?: () => Promise<boolean>;
}

export interface GrpcServer {
  /** Accepts no new calls, waits at most `graceMs` for those in progress, and closes. */
  close(graceMs?: number): Promise<void>;
}

/** Of one message. */
const MAX_BYTES = 32 * 1024 * 1024;
const GRACE_MS = 20_000;

/** Prefix of the name of the directory in which a socket is created. */
const FRESH_DIR = '.catena-grpc-';

/** Time for answers to arrive and for clients to close their end. */
const LET_GO_MS = 500;

/**
 * Listens on a socket that only its owner may open (0600), in place of an earlier daemon.
 * @throws Error if the socket cannot be created
 */
export async function serveGrpc(options: GrpcOptions): Promise<GrpcServer> {
  const { socketPath, call, env, observer, isHealthy = async () => true } = options;
  let working = 0;
  let lastAnswer = 0;
  const count = ({ type }: GrpcMethod, by: number): void => {
    // Streams belong to watchers, which stay connected as long as they like.
    if (type !== 'unary') return;
    working += by;
    lastAnswer = performance.now();
  };
  const server = new Server({
    interceptors: [watchCalls(observer, count)],
    'grpc.max_receive_message_length': MAX_BYTES,
    'grpc.max_send_message_length': MAX_BYTES,
  });
  server.addService(serviceOf(CNI_SERVICE), serveCni(call, env));
  server.addService(serviceOf(HEALTH_SERVICE), serveHealth(GRPC_SERVICES, isHealthy));
  for (const name of REFLECTION_SERVICES) {
    server.addService(serviceOf(name), serveReflection(GRPC_SERVICES));
  }
  const inode = await listen(server, socketPath);
  return {
    async close(graceMs = GRACE_MS) {
      if (statSync(socketPath, { throwIfNoEntry: false })?.ino === inode) rmSync(socketPath, { force: true });
      await shutDown(server, graceMs, () => (working > 0 ? 0 : performance.now() - lastAnswer));
    },
  };
}

/**
 * Creates the socket in a private directory and renames it once it listens and has its mode. So no other user can ever connect,
 * and a client never finds a name without a server behind it.
 * @returns the socket's inode
 */
async function listen(server: Server, socketPath: string): Promise<number> {
  mkdirSync(dirname(socketPath), { recursive: true, mode: 0o700 });
  sweepGivenUp(dirname(socketPath), name => name.startsWith(FRESH_DIR));
  const dir = mkdtempSync(join(dirname(socketPath), FRESH_DIR));
  const fresh = join(dir, 's');
  try {
    await new Promise<void>((done, fail) => {
      server.bindAsync(`unix:${fresh}`, ServerCredentials.createInsecure(), error =>
        error ? fail(new Error(`Cannot serve gRPC on "${socketPath}": ${error.message}`)) : done(),
      );
    });
    chmodSync(fresh, 0o600);
    renameSync(fresh, socketPath);
    return statSync(socketPath).ino;
  } catch (error) {
    server.forceShutdown();
    throw error;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Asks clients with an idle connection to disconnect, but does not wait for them. */
function shutDown(server: Server, graceMs: number, restedMs: () => number): Promise<void> {
  return new Promise(done => {
    const began = performance.now();
    const look = setInterval(() => {
      const waitedMs = performance.now() - began;
      if (waitedMs < graceMs && Math.min(waitedMs, restedMs()) < LET_GO_MS) return;
      server.forceShutdown();
      finish();
    }, 50);
    const finish = (): void => {
      clearInterval(look);
      done();
    };
    server.tryShutdown(finish);
  });
}

/** A method, as the Prometheus gRPC middleware describes it. */
interface GrpcMethod {
  readonly type: 'unary' | 'client_stream' | 'server_stream' | 'bidi_stream';
  /** Full name of the service. */
  readonly service: string;
  readonly method: string;
}

export interface GrpcCall extends GrpcMethod {
  readonly peer: string;
  readonly startedAt: number;
  /** Milliseconds since 1970; undefined if the client waits forever. */
  readonly deadline: number | undefined;
  readonly durationMs: number;
  /** `OK`, `InvalidArgument`, …: spelled as in Go, which dashboards expect. */
  readonly code: string;
  readonly message: string;
  /** The client's last message. */
  readonly request: unknown;
}

/** Notified of each call; must not throw. */
interface GrpcObserver {
  started(method: GrpcMethod): void;
  received(method: GrpcMethod): void;
  sent(method: GrpcMethod): void;
  finished(call: GrpcCall): void;
}

/** An interceptor that only observes. @param count the calls in progress */
function watchCalls(
  observer: GrpcObserver,
  count: (method: GrpcMethod, by: 1 | -1) => void,
): ServerInterceptor {
  return ({ path, requestStream, responseStream }, call) => {
    const [, service = '', name = ''] = path.split('/');
    const method: GrpcMethod = { type: typeOf(requestStream, responseStream), service, method: name };
    const startedAt = Date.now();
    const begin = performance.now();
    let request: unknown;
    let over = false;
    const finish = (code: status, message: string): void => {
      if (over) return;
      over = true;
      count(method, -1);
      const deadline = Number(call.getDeadline());
      observer.finished({
        ...method,
        peer: call.getPeer(),
        startedAt,
        deadline: Number.isFinite(deadline) ? deadline : undefined,
        durationMs: performance.now() - begin,
        code: CODE_NAMES[code] ?? String(code),
        message,
        request,
      });
    };
    count(method, 1);
    observer.started(method);
    return new ServerInterceptingCall(call, {
      start: next =>
        next({
          onReceiveMessage(message, forward) {
            request = message;
            observer.received(method);
            forward(message);
          },
          onCancel: () => finish(status.CANCELLED, 'the client disconnected'),
        }),
      sendMessage(message, forward) {
        observer.sent(method);
        forward(message);
      },
      sendStatus(sent, forward) {
        finish(sent.code ?? status.OK, sent.details ?? '');
        forward(sent);
      },
    });
  };
}

/** The middleware's name for a kind of method. */
function typeOf(requestStream: boolean, responseStream: boolean): GrpcMethod['type'] {
  if (requestStream) return responseStream ? 'bidi_stream' : 'client_stream';
  return responseStream ? 'server_stream' : 'unary';
}

/** google.golang.org/grpc/codes: the names of Code.String(), in numerical order. */
export const CODE_NAMES: readonly string[] = [
  'OK',
  'Canceled',
  'Unknown',
  'InvalidArgument',
  'DeadlineExceeded',
  'NotFound',
  'AlreadyExists',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'Aborted',
  'OutOfRange',
  'Unimplemented',
  'Internal',
  'Unavailable',
  'DataLoss',
  'Unauthenticated',
];
