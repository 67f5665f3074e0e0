// What is there to know of every call of any service, for metrics and the log?
import {
  ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerInterceptor,
  status,
} from '@grpc/grpc-js';

/** Which method, in the words of the Prometheus gRPC middleware. */
export interface GrpcMethod {
  readonly type: 'unary' | 'client_stream' | 'server_stream' | 'bidi_stream';
  /** Full name of the service. */
  readonly service: string;
  readonly method: string;
}

/** A call that is over. */
export interface GrpcCall extends GrpcMethod {
  readonly peer: string;
  readonly startedAt: number;
  readonly deadline: number | undefined;
  readonly durationMs: number;
  /** `OK`, `InvalidArgument`, …: as Go writes it, which dashboards know. */
  readonly code: string;
  readonly message: string;
  /** The last message of the client. */
  readonly request: unknown;
}

/** Told of each call; must not throw. */
export interface GrpcObserver {
  started(method: GrpcMethod): void;
  received(method: GrpcMethod): void;
  sent(method: GrpcMethod): void;
  finished(call: GrpcCall): void;
}

/** An interceptor that changes nothing. */
export function watchCalls(observer: GrpcObserver): ServerInterceptor {
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
      observer.finished({
        ...method,
        peer: call.getPeer(),
        startedAt,
        deadline: deadlineOf(call),
        durationMs: performance.now() - begin,
        code: CODE_NAMES[code] ?? String(code),
        message,
        request,
      });
    };
    observer.started(method);
    return new ServerInterceptingCall(call, {
      start: next =>
        next({
          onReceiveMessage(message, forward) {
            request = message;
            observer.received(method);
            forward(message);
          },
          onCancel: () => finish(status.CANCELLED, 'the client gave up'),
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

/** The middleware's word for a kind of method. */
export function typeOf(requestStream: boolean, responseStream: boolean): GrpcMethod['type'] {
  if (requestStream) return responseStream ? 'bidi_stream' : 'client_stream';
  return responseStream ? 'server_stream' : 'unary';
}

/** Milliseconds since 1970; undefined when the client waits for ever. */
function deadlineOf(call: ServerInterceptingCallInterface): number | undefined {
  const deadline = Number(call.getDeadline());
  return Number.isFinite(deadline) ? deadline : undefined;
}

/** google.golang.org/grpc/codes: the names of Code.String(), in the order of their numbers. */
export const CODE_NAMES: readonly string[] = [
  ...['OK', 'Canceled', 'Unknown', 'InvalidArgument', 'DeadlineExceeded', 'NotFound', 'AlreadyExists'],
  ...[
    'PermissionDenied',
    'ResourceExhausted',
    'FailedPrecondition',
    'Aborted',
    'OutOfRange',
    'Unimplemented',
  ],
  ...['Internal', 'Unavailable', 'DataLoss', 'Unauthenticated'],
];
