// What do metrics and the log need to know about every gRPC call?
import {
  ServerInterceptingCall,
  type ServerInterceptingCallInterface,
  type ServerInterceptor,
  status,
} from '@grpc/grpc-js';

/** A method, as the Prometheus gRPC middleware describes it. */
export interface GrpcMethod {
  readonly type: 'unary' | 'client_stream' | 'server_stream' | 'bidi_stream';
  /** Full name of the service. */
  readonly service: string;
  readonly method: string;
}

/** A finished call. */
export interface GrpcCall extends GrpcMethod {
  readonly peer: string;
  readonly startedAt: number;
  readonly deadline: number | undefined;
  readonly durationMs: number;
  /** `OK`, `InvalidArgument`, …: spelled as in Go, which dashboards expect. */
  readonly code: string;
  readonly message: string;
  /** The client's last message. */
  readonly request: unknown;
}

/** Notified of each call; must not throw. */
export interface GrpcObserver {
  started(method: GrpcMethod): void;
  received(method: GrpcMethod): void;
  sent(method: GrpcMethod): void;
  finished(call: GrpcCall): void;
}

/** An interceptor that only observes. */
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
export function typeOf(requestStream: boolean, responseStream: boolean): GrpcMethod['type'] {
  if (requestStream) return responseStream ? 'bidi_stream' : 'client_stream';
  return responseStream ? 'server_stream' : 'unary';
}

/** Milliseconds since 1970; undefined if the client waits forever. */
function deadlineOf(call: ServerInterceptingCallInterface): number | undefined {
  const deadline = Number(call.getDeadline());
  return Number.isFinite(deadline) ? deadline : undefined;
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
