// How does the daemon's gRPC socket come to be, for who asked for one?
import { CniError, ErrorCode } from '../../cni/errors.ts';
import { CODE_NAMES, type GrpcCall } from '../../daemon/grpc/watch-calls.ts';
import { type GrpcServer, grpcMethods, serveGrpc } from '../../daemon/grpc.ts';
import { cniBackendOf, type WatchedCall } from '../../daemon/plugin-calls.ts';
import { BUSY, type Server } from '../../daemon/server.ts';
import type { LogFields, LogLevel } from '../../log.ts';
import { addGrpcMetrics } from '../../observe/grpc-metrics.ts';
import type { Observer } from '../../observe/observer.ts';
import { maskText } from '../../observe/secrets.ts';

/** What stands behind the socket. */
export interface GrpcParts {
  readonly socketPath: string;
  readonly observer: Observer;
  readonly server: Server;
  readonly call: WatchedCall;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly isHealthy: () => Promise<boolean>;
}

/** Listens; calls count and are logged, and wait for their turn with all other requests. */
export function openGrpcSocket({
  socketPath,
  observer,
  server,
  call,
  env,
  isHealthy,
}: GrpcParts): Promise<GrpcServer> {
  const metrics = addGrpcMetrics(observer.metrics.registry, grpcMethods(), CODE_NAMES);
  const admit = <T>(work: (queueMs: number) => Promise<T>): Promise<T> =>
    server.admit(work) ?? Promise.reject(new CniError(ErrorCode.tryAgainLater, BUSY));
  return serveGrpc({
    socketPath,
    isHealthy,
    backend: cniBackendOf(call, admit, env),
    observer: {
      ...metrics,
      finished(finished) {
        metrics.finished(finished);
        observer.log(levelOf(finished.code), 'finished call', fieldsOf(finished));
      },
    },
  });
}

const WARNINGS: readonly string[] = [
  ...['DeadlineExceeded', 'PermissionDenied', 'ResourceExhausted', 'FailedPrecondition', 'Aborted'],
  ...['OutOfRange', 'Unavailable'],
];

const NO_PROBLEMS: readonly string[] = [
  ...['OK', 'NotFound', 'Canceled', 'AlreadyExists', 'InvalidArgument', 'Unauthenticated'],
];

/** As coil's daemon has it: what the client did wrong is no problem of ours. */
function levelOf(code: string): LogLevel {
  if (NO_PROBLEMS.includes(code)) return 'info';
  return WARNINGS.includes(code) ? 'warn' : 'error';
}

/** Fields and tags under the names of the middleware that coil's daemon uses. */
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
    ...tagsOf(call.request as Partial<Tagged> | undefined),
  };
}

/** The parts of `CNIArgs` that name a request. */
interface Tagged {
  readonly container_id: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: Readonly<Record<string, string>>;
}

function tagsOf(request: Partial<Tagged> | undefined): LogFields {
  if (request?.container_id === undefined) return {};
  const { container_id, netns, ifname, args = {} } = request;
  return {
    'grpc.request.pod.name': args.K8S_POD_NAME ?? '',
    'grpc.request.pod.namespace': args.K8S_POD_NAMESPACE ?? '',
    'grpc.request.netns': netns,
    'grpc.request.ifname': ifname,
    'grpc.request.container_id': container_id,
  };
}
