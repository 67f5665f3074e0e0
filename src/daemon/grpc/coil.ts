// How are coil's calls (pkg.cnirpc.CNI) served by the delegate runner, and how do failures become its errors?
import { Metadata, type ServerUnaryCall, type sendUnaryData, status } from '@grpc/grpc-js';
import { findPairProblem, renderCniArgs } from '../../cni/env.ts';
import { CniError, ErrorCode, toCniError } from '../../cni/errors.ts';
import { errorIn, type Invocation, objectIn, type Reply } from '../../cni/invocation.ts';
import { type JsonObject, parseObject } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';
import { hasGone } from '../calls.ts';
import { encode } from './schema.ts';

/** Makes a call of the delegate runner. An error that it throws is sent to the client. */
export type CallRunner = (call: Invocation, signal: AbortSignal) => Promise<Reply>;

/** `CNIArgs` as sent on the wire. */
interface CniCall {
  readonly container_id: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: Readonly<Record<string, string>>;
  readonly path: string;
  readonly stdin_data: Uint8Array;
}

/** Directory of plugins if the client does not set `CNI_PATH`. */
const DEFAULT_PATH = '/opt/cni/bin';

/** coil's plugin reads results of this version, whatever the version of its own conflist. */
const ANSWER_VERSION = '1.0.0';

/** coil's plugin adds this argument to say whether there is a prevResult. No CNI plugin knows it. */
const SYNTHETIC_ARGS: readonly string[] = ['IS_CHAINED'];

type Unary = (call: ServerUnaryCall<CniCall, object>, reply: sendUnaryData<object>) => void;

/**
 * The three methods of the service.
 * @param env environment that calls inherit
 */
export function serveCni(make: CallRunner, env: Invocation['env']): Record<'Add' | 'Check' | 'Del', Unary> {
  const method =
    (verb: string, toAnswer: (said: JsonObject) => object): Unary =>
    (call, reply) => {
      const controller = new AbortController();
      const { signal } = controller;
      call.on('cancelled', () => controller.abort());
      const work = async (): Promise<object> => {
        if (await hasGone(signal))
          throw new CniError(ErrorCode.tryAgainLater, 'Cannot serve the call: its client has gone');
        const made = await make(toInvocation(verb, call.request, env), signal);
        if (made.exitCode !== 0) throw errorIn(made);
        return toAnswer(objectIn(made.stdout) ?? {});
      };
      work().then(
        answer => reply(null, answer),
        thrown => reply(toStatus(toCniError(thrown))),
      );
    };
  return {
    Add: method('ADD', said => ({
      result: Buffer.from(JSON.stringify(convertResult(said, ANSWER_VERSION))),
    })),
    Check: method('CHECK', () => ({})),
    Del: method('DEL', () => ({})),
  };
}

function toInvocation(verb: string, call: CniCall, env: Invocation['env']): Invocation {
  const own = {
    CNI_COMMAND: verb,
    CNI_CONTAINERID: call.container_id,
    CNI_NETNS: call.netns,
    CNI_IFNAME: call.ifname,
    CNI_ARGS: argsOf(call),
    CNI_PATH: call.path || env.CNI_PATH || DEFAULT_PATH,
  };
  return { env: { ...env, ...own }, stdin: toRunnerConfig(Buffer.from(call.stdin_data).toString()) };
}

/** `CNI_ARGS` of a call. A value with ";" would become further arguments, which plugins would trust like the runtime's own. */
function argsOf({ args }: CniCall): string {
  const pairs = Object.entries(args).filter(([name]) => !SYNTHETIC_ARGS.includes(name));
  for (const [key, value] of pairs) {
    const problem = findPairProblem(key, value);
    if (problem === undefined) continue;
    const text = `Cannot use argument ${JSON.stringify(`${key}=${value}`)}: ${problem}`;
    throw new CniError(ErrorCode.invalidEnvironment, text);
  }
  // coil's plugin forwards only the arguments that it knows, which do not include the runtime's IgnoreUnknown.
  if (args.IgnoreUnknown === undefined) pairs.push(['IgnoreUnknown', '1']);
  return renderCniArgs(pairs);
}

/**
 * The configuration of the runner: it lists its networks under `delegates`, or is itself a conflist with `plugins`, which becomes the only
 * delegate of a runner of the same name.
 */
function toRunnerConfig(text: string): string {
  const config = parseObject(text, 'stdin_data');
  if (!Array.isArray(config.plugins)) return text;
  const { cniVersion, name, runtimeConfig } = config;
  return JSON.stringify({ cniVersion, name, type: 'catena', runtimeConfig, delegates: [config] });
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
