// How do calls of pkg.cnirpc.CNI become requests, and how do failures become its errors?
import { Metadata, type ServerUnaryCall, type sendUnaryData, status } from '@grpc/grpc-js';
import { type CniArgs, findPairProblem } from '../../cni/cni-args.ts';
import { CniError, ErrorCode, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { hasGone } from '../calls.ts';
import { encode } from './schema.ts';

/** `CNIArgs` as sent on the wire. */
export interface CniCall {
  readonly container_id: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: Readonly<Record<string, string>>;
  readonly path: string;
  readonly stdin_data: Uint8Array;
}

/** What a plugin would get in its environment and on standard input. */
export interface CniRequest {
  readonly containerId: string;
  readonly netns: string;
  readonly ifname: string;
  /** `CNI_ARGS`, without the arguments that coil's plugin adds for its own daemon. */
  readonly args: CniArgs;
  /** `CNI_PATH` */
  readonly path: string;
  /** The configuration as JSON text. */
  readonly config: string;
  /** Aborted when the client gives up or its deadline has passed. */
  readonly signal: AbortSignal;
}

/** Does the work. An error that it throws is sent to the client as a {@link CniError}. */
export interface CniBackend {
  /** @returns the result */
  add(request: CniRequest): Promise<JsonObject>;
  check(request: CniRequest): Promise<void>;
  del(request: CniRequest): Promise<void>;
}

/** coil's plugin adds this argument to say whether there is a prevResult. No CNI plugin knows it. */
const SYNTHETIC_ARGS: readonly string[] = ['IS_CHAINED'];

type Unary = (call: ServerUnaryCall<CniCall, object>, reply: sendUnaryData<object>) => void;

/** The three methods of the service. */
export function serveCni(backend: CniBackend): Record<'Add' | 'Check' | 'Del', Unary> {
  return {
    Add: answering(async request => ({ result: Buffer.from(JSON.stringify(await backend.add(request))) })),
    Check: answering(async request => {
      await backend.check(request);
      return {};
    }),
    Del: answering(async request => {
      await backend.del(request);
      return {};
    }),
  };
}

function answering(work: (request: CniRequest) => Promise<object>): Unary {
  return (call, reply) => {
    const controller = new AbortController();
    call.on('cancelled', () => controller.abort());
    // In the promise, so that a refused request gets a status as well.
    const answered = hasGone(controller.signal).then(isGone => {
      if (isGone) throw new CniError(ErrorCode.tryAgainLater, 'Cannot serve the call: its client has gone');
      return work(toRequest(call.request, controller.signal));
    });
    answered.then(
      answer => reply(null, answer),
      thrown => reply(toStatus(toCniError(thrown))),
    );
  };
}

function toRequest(call: CniCall, signal: AbortSignal): CniRequest {
  return {
    containerId: call.container_id,
    netns: call.netns,
    ifname: call.ifname,
    args: argsOf(call),
    path: call.path,
    config: Buffer.from(call.stdin_data).toString(),
    signal,
  };
}

/** The arguments of a call. A value with ";" would become further arguments, which plugins would trust like the runtime's own. */
function argsOf({ args }: CniCall): CniArgs {
  const pairs = Object.entries(args).filter(([name]) => !SYNTHETIC_ARGS.includes(name));
  for (const [key, value] of pairs) {
    const problem = findPairProblem(key, value);
    if (problem === undefined) continue;
    const text = `Cannot use argument ${JSON.stringify(`${key}=${value}`)}: ${problem}`;
    throw new CniError(ErrorCode.invalidEnvironment, text);
  }
  return pairs;
}

/** The closest gRPC code; clients of this service read the detail instead. */
const GRPC_CODES: Readonly<Record<number, status>> = {
  [ErrorCode.incompatibleVersion]: status.INVALID_ARGUMENT,
  [ErrorCode.unsupportedField]: status.INVALID_ARGUMENT,
  [ErrorCode.unknownContainer]: status.NOT_FOUND,
  [ErrorCode.invalidEnvironment]: status.INVALID_ARGUMENT,
  [ErrorCode.decodingFailure]: status.INVALID_ARGUMENT,
  [ErrorCode.invalidConfig]: status.INVALID_ARGUMENT,
  [ErrorCode.invalidNetns]: status.FAILED_PRECONDITION,
  [ErrorCode.tryAgainLater]: status.UNAVAILABLE,
  [ErrorCode.unavailable]: status.UNAVAILABLE,
  [ErrorCode.unavailableLimited]: status.UNAVAILABLE,
};

/**
 * Bytes in UTF-8. Trailers are headers, and clients accept 8 KiB of them: the message is in them as three characters for each byte
 * that is not ASCII, and twice, with the details, in base64.
 */
const MAX_TEXT = 1_000;

/** A status with exactly one detail: a `CNIError` with the CNI error code. */
function toStatus({ code, message, details = '' }: CniError): Partial<{
  code: status;
  details: string;
  metadata: Metadata;
}> {
  const grpcCode = GRPC_CODES[code] ?? status.INTERNAL;
  const metadata = new Metadata();
  const msg = clip(message);
  const detail = encode('pkg.cnirpc.CNIError', { code, msg, details: clip(details) });
  metadata.set(
    'grpc-status-details-bin',
    encode('google.rpc.Status', {
      code: grpcCode,
      message: msg,
      details: [{ type_url: 'type.googleapis.com/pkg.cnirpc.CNIError', value: detail }],
    }),
  );
  return { code: grpcCode, details: msg, metadata };
}

function clip(text: string): string {
  const bytes = Buffer.from(text);
  return bytes.length > MAX_TEXT ? `${bytes.toString('utf8', 0, MAX_TEXT).replace(/\ufffd+$/, '')}…` : text;
}
