// How are coil's calls (pkg.cnirpc.CNI) served by the delegate runner, and health and reflection, as their protocols say?

import {
  Metadata,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import { FileDescriptorProto } from 'protobufjs/ext/descriptor';
import { findPairProblem, renderCniArgs } from '../../cni/env.ts';
import { type CniError, ErrorCode, invalidEnvironment, toCniError, tryAgainLater } from '../../cni/errors.ts';
import { errorIn, type Invocation, objectIn, type Reply } from '../../cni/invocation.ts';
import { type JsonObject, parseObject } from '../../cni/json.ts';
import { convertResult } from '../../cni/result.ts';
import { hasGone } from '../calls.ts';
import { encode, PROTO_FILES, type ProtoFile, SCHEMA } from './schema.ts';

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
        if (await hasGone(signal)) throw tryAgainLater('Cannot serve the call: its client has gone');
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
    throw invalidEnvironment(text);
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

/** A service by its full name, or an empty name for the whole server. */
interface HealthRequest {
  readonly service: string;
}

type Status = 'SERVING' | 'NOT_SERVING' | 'SERVICE_UNKNOWN';

/** Interval between checks of a watched service. */
const WATCH_MS = 5_000;

/**
 * Answers whether a service works, once or at each change.
 * @param isHealthy a real attempt, such as a round trip through a worker; a rejection counts as unhealthy
 */
export function serveHealth(services: readonly string[], isHealthy: () => Promise<boolean>) {
  const ask = async (service: string): Promise<Status> => {
    if (service !== '' && !services.includes(service)) return 'SERVICE_UNKNOWN';
    return (await isHealthy().catch(() => false)) ? 'SERVING' : 'NOT_SERVING';
  };
  return {
    async Check(
      { request }: ServerUnaryCall<HealthRequest, object>,
      reply: sendUnaryData<object>,
    ): Promise<void> {
      const found = await ask(request.service);
      if (found === 'SERVICE_UNKNOWN') {
        reply({ code: status.NOT_FOUND, details: `Cannot find service "${request.service}"` });
      } else reply(null, { status: found });
    },
    Watch(call: ServerWritableStream<HealthRequest, object>): void {
      let last: Status | undefined;
      const look = async (): Promise<void> => {
        const found = await ask(call.request.service);
        if (found !== last && !call.cancelled) call.write({ status: found });
        last = found;
      };
      void look();
      const timer = setInterval(look, WATCH_MS);
      timer.unref();
      for (const end of ['cancelled', 'close', 'error']) call.on(end, () => clearInterval(timer));
    },
  };
}

/** A question: one member of the oneof is set, and `message_request` names it. */
interface ReflectionRequest {
  readonly message_request?: string;
  readonly file_by_filename?: string;
  readonly file_containing_symbol?: string;
  readonly list_services?: string;
  readonly [other: string]: unknown;
}

/** Answers every question of a stream, in order. */
export function serveReflection(services: readonly string[]) {
  return {
    ServerReflectionInfo(call: ServerDuplexStream<ReflectionRequest, object>): void {
      call.on('data', (request: ReflectionRequest) => {
        call.write({ valid_host: request.host, original_request: request, ...answer(request, services) });
      });
      call.on('end', () => call.end());
      // The client has disconnected; an error cannot be reported to it.
      call.on('error', () => {});
    },
  };
}

function answer(request: ReflectionRequest, services: readonly string[]): object {
  switch (request.message_request) {
    case 'list_services':
      return { list_services_response: { service: services.map(name => ({ name })) } };
    case 'file_by_filename':
      return toFiles(
        PROTO_FILES.find(({ name }) => name === request.file_by_filename),
        request.file_by_filename,
      );
    case 'file_containing_symbol':
      return toFiles(findFileOf(request.file_containing_symbol ?? ''), request.file_containing_symbol);
    default:
      return problem(status.UNIMPLEMENTED, 'Cannot find extensions: proto3 has none');
  }
}

/** FileDescriptorProto bytes of a file and of the files that it imports. */
function toFiles(file: ProtoFile | undefined, name = ''): object {
  if (file === undefined) return problem(status.NOT_FOUND, `Cannot find "${name}": no schema defines it`);
  const imported = PROTO_FILES.filter(one => file.imports.includes(one.name));
  const files = [file, ...imported].map(one =>
    FileDescriptorProto.encode(FileDescriptorProto.fromObject(toDescriptor(one))).finish(),
  );
  return { file_descriptor_response: { file_descriptor_proto: files } };
}

function problem(code: number, message: string): object {
  return { error_response: { error_code: code, error_message: message } };
}

/** The file that defines a service, method, message or enumeration. */
function findFileOf(symbol: string): ProtoFile | undefined {
  const found = SCHEMA.lookup(symbol) ?? SCHEMA.lookup(symbol.slice(0, symbol.lastIndexOf('.')));
  // The last part of the name may be a method's. A package is not a symbol.
  if (!found || (found instanceof protobuf.Namespace && found.constructor === protobuf.Namespace)) {
    return undefined;
  }
  // The comparison includes the dot, since one package name may be a prefix of another.
  return PROTO_FILES.find(one => symbol.startsWith(`${one.package}.`));
}

function toDescriptor({ name, package: pkg, imports }: ProtoFile): object {
  const { nestedArray } = SCHEMA.lookup(pkg) as protobuf.Namespace;
  return {
    name,
    package: pkg,
    dependency: imports,
    messageType: nestedArray.filter(one => one instanceof protobuf.Type).map(toMessage),
    enumType: nestedArray.filter(one => one instanceof protobuf.Enum).map(describe),
    service: nestedArray.filter(one => one instanceof protobuf.Service).map(describe),
    syntax: 'proto3',
  };
}

function toMessage(type: protobuf.Type): object {
  const entries = type.fieldsArray.filter(field => field instanceof protobuf.MapField).map(toMapEntry);
  return {
    name: type.name,
    field: type.fieldsArray.map(field => toField(field, type.oneofsArray)),
    nestedType: [...type.nestedArray.filter(one => one instanceof protobuf.Type).map(toMessage), ...entries],
    enumType: type.nestedArray.filter(one => one instanceof protobuf.Enum).map(describe),
    oneofDecl: type.oneofsArray.map(({ name }) => ({ name })),
  };
}

function toField(field: protobuf.Field, oneofs: readonly protobuf.OneOf[]): object {
  const isMap = field instanceof protobuf.MapField;
  return {
    name: field.name,
    number: field.id,
    label: isMap || field.repeated ? 'LABEL_REPEATED' : 'LABEL_OPTIONAL',
    ...(isMap
      ? { type: 'TYPE_MESSAGE', typeName: `${field.parent?.fullName}.${entryName(field)}` }
      : toFieldType(field)),
    ...(field.partOf ? { oneofIndex: oneofs.indexOf(field.partOf) } : {}),
    jsonName: protobuf.util.camelCase(field.name),
  };
}

function toFieldType({ type, resolvedType }: Pick<protobuf.Field, 'type' | 'resolvedType'>): object {
  if (resolvedType === null) return { type: `TYPE_${type.toUpperCase()}` };
  const kind = resolvedType instanceof protobuf.Enum ? 'TYPE_ENUM' : 'TYPE_MESSAGE';
  return { type: kind, typeName: resolvedType.fullName };
}

/** On the wire, a map is a list of messages of a type of its own. */
function toMapEntry(field: protobuf.MapField): object {
  const key = { name: 'key', number: 1, label: 'LABEL_OPTIONAL', jsonName: 'key' };
  const value = { name: 'value', number: 2, label: 'LABEL_OPTIONAL', jsonName: 'value' };
  return {
    name: entryName(field),
    field: [
      { ...key, type: `TYPE_${field.keyType.toUpperCase()}` },
      { ...value, ...toFieldType(field) },
    ],
    options: { mapEntry: true },
  };
}

/** The name that readers of descriptors require. */
function entryName({ name }: protobuf.MapField): string {
  const camel = protobuf.util.camelCase(name);
  return `${camel[0]?.toUpperCase()}${camel.slice(1)}Entry`;
}

/** What `protobufjs/ext/descriptor` adds to the package's classes without a declaration. For a message with a map it is wrong. */
function describe(one: protobuf.Enum | protobuf.Service): object {
  return (one as unknown as { toDescriptor(): object }).toDescriptor();
}
