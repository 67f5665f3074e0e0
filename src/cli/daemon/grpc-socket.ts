// How is the daemon's optional gRPC socket set up?
import { tryAgainLater } from '../../cni/errors.ts';
import { networkIn } from '../../cni/invocation.ts';
import { isObject, type JsonObject } from '../../cni/json.ts';
import type { WatchedCall } from '../../daemon/backend.ts';
import { CODE_NAMES, type GrpcCall, type GrpcServer, grpcMethods, serveGrpc } from '../../daemon/grpc.ts';
import type { WorkerPool } from '../../daemon/pool.ts';
import { BUSY } from '../../daemon/server.ts';
import { awaitSeat } from '../../daemon/who-listens.ts';
import type { LogFields, LogLevel } from '../../log.ts';
import { addGrpcMetrics } from '../../observe/metrics.ts';
import type { Observer } from '../../observe/observer.ts';
import { maskText } from '../../observe/secrets.ts';

interface GrpcParts {
  readonly socketPath: string;
  readonly observer: Observer;
  readonly pool: WorkerPool;
  readonly call: WatchedCall;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Listens. Calls are counted and logged, and are queued together with all other requests.
 * @throws SeatTaken if another daemon listens on the socket
 */
export async function openGrpcSocket(parts: GrpcParts): Promise<GrpcServer> {
  const { socketPath, observer, pool, call, env } = parts;
  const metrics = addGrpcMetrics(observer.metrics.registry, grpcMethods(), CODE_NAMES);
  const seat = await awaitSeat(socketPath);
  const grpc = await serveGrpc({
    socketPath,
    isHealthy: () => pool.ready(),
    env,
    async call(invocation, signal) {
      const asked = performance.now();
      const turn = await pool.enter({ network: networkIn(invocation.stdin) });
      if (turn === undefined) throw tryAgainLater(BUSY);
      return call(invocation, signal, performance.now() - asked, turn).finally(() => turn.leave());
    },
    observer: {
      ...metrics,
      finished(finished) {
        metrics.finished(finished);
        observer.log(levelOf(finished.code), 'call finished', fieldsOf(finished));
      },
    },
  });
  return {
    async close(graceMs) {
      // The socket's name is removed at once. Calls in progress are finished while another daemon may already be listening.
      const closed = grpc.close(graceMs);
      seat.release();
      await closed;
    },
  };
}

const WARNINGS: readonly string[] = [
  'DeadlineExceeded',
  'PermissionDenied',
  'ResourceExhausted',
  'FailedPrecondition',
  'Aborted',
  'OutOfRange',
  'Unavailable',
];

const NO_PROBLEMS: readonly string[] = [
  'OK',
  'NotFound',
  'Canceled',
  'AlreadyExists',
  'InvalidArgument',
  'Unauthenticated',
];

/** Same levels as coil's daemon: a client's mistake is not our problem. */
function levelOf(code: string): LogLevel {
  if (NO_PROBLEMS.includes(code)) return 'info';
  return WARNINGS.includes(code) ? 'warn' : 'error';
}

/** Fields and tags, named as by the middleware that coil's daemon uses. */
function fieldsOf(call: GrpcCall): LogFields {
  const { type, service, method, startedAt, deadline, durationMs, code, message, peer } = call;
  return {
    protocol: 'grpc',
    'grpc.component': 'server',
    'grpc.service': service,
    'grpc.method': method,
    'grpc.method_type': type,
    'peer.address': peer,
    'grpc.start_time': new Date(startedAt).toISOString(),
    ...(deadline === undefined ? {} : { 'grpc.request.deadline': new Date(deadline).toISOString() }),
    'grpc.code': code,
    ...(code === 'OK' ? {} : { 'grpc.error': maskText(message) }),
    'grpc.time_ms': Math.round(durationMs * 1000) / 1000,
    ...tagsOf(call.request as JsonObject | undefined),
  };
}

/** The parts of `CNIArgs` that identify a request. */
function tagsOf(request: JsonObject = {}): LogFields {
  const { container_id, netns, ifname } = request;
  if (container_id === undefined) return {};
  const args = isObject(request.args) ? request.args : {};
  return {
    'grpc.request.pod.name': args.K8S_POD_NAME ?? '',
    'grpc.request.pod.namespace': args.K8S_POD_NAMESPACE ?? '',
    'grpc.request.netns': netns,
    'grpc.request.ifname': ifname,
    'grpc.request.container_id': container_id,
  };
}
