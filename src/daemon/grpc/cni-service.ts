// How do calls of pkg.cnirpc.CNI become requests, and failures its errors?
import { Metadata, type ServerUnaryCall, type sendUnaryData, status } from '@grpc/grpc-js';
import type { CniArgs } from '../../cni/cni-args.ts';
import { type CniError, ErrorCode, toCniError } from '../../cni/errors.ts';
import type { JsonObject } from '../../cni/json.ts';
import { encode } from './schema.ts';

/** `CNIArgs` as it is on the wire. */
export interface CniCall {
  readonly container_id: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: Readonly<Record<string, string>>;
  readonly path: string;
  readonly stdin_data: Uint8Array;
}

/** What a plugin would be asked in its environment and on standard input. */
export interface CniRequest {
  readonly containerId: string;
  readonly netns: string;
  readonly ifname: string;
  /** `CNI_ARGS`, without what coil's plugin only says to its own daemon. */
  readonly args: CniArgs;
  /** `CNI_PATH` */
  readonly path: string;
  /** The configuration as JSON text. */
  readonly config: string;
  /** Fires when the client gave up, or its deadline has passed. */
  readonly signal: AbortSignal;
}

/** Who does the work; what it throws goes back as a {@link CniError}. */
export interface CniBackend {
  /** @returns the result */
  add(request: CniRequest): Promise<JsonObject>;
  check(request: CniRequest): Promise<void>;
  del(request: CniRequest): Promise<void>;
}

/** coil's plugin says so whether it has a prevResult; no link knows it. */
const SYNTHETIC_ARGS: readonly string[] = ['IS_CHAINED'];

type Unary = (call: ServerUnaryCall<CniCall, object>, reply: sendUnaryData<object>) => void;

/** The three methods. */
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
    work(toRequest(call.request, controller.signal)).then(
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
    args: Object.entries(call.args).filter(([name]) => !SYNTHETIC_ARGS.includes(name)),
    path: call.path,
    config: Buffer.from(call.stdin_data).toString(),
    signal,
  };
}

/** The code of gRPC that comes nearest; a client of this service reads the detail. */
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

/** Trailers are headers: clients take 8 KiB of them, in which all of this stands twice. */
const MAX_TEXT = 1_000;

/** A status with exactly one detail, a `CNIError` whose number is the code of the protocol. */
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
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}
