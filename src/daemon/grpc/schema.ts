// Which messages and services do the gRPC server and clients use, how are they encoded, and how is one called?

import {
  Client,
  credentials,
  type MethodDefinition,
  type ServiceDefinition,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import protobuf from 'protobufjs';

import cni from '../cni.proto' with { type: 'text' };
import empty from './empty.proto' with { type: 'text' };
import health from './health.proto' with { type: 'text' };
import podResources from './pod-resources.proto' with { type: 'text' };
import reflection from './reflection.proto' with { type: 'text' };
import statusProto from './status.proto' with { type: 'text' };

/** A schema, and the name by which other files import it. */
export interface ProtoFile {
  readonly name: string;
  readonly package: string;
  readonly imports: readonly string[];
  readonly text: string;
}

/** Every schema that clients may ask for. The texts are embedded in the executable. */
export const PROTO_FILES: readonly ProtoFile[] = [
  { name: 'google/protobuf/empty.proto', package: 'google.protobuf', imports: [], text: empty },
  { name: 'cni.proto', package: 'pkg.cnirpc', imports: ['google/protobuf/empty.proto'], text: cni },
  { name: 'grpc/health/v1/health.proto', package: 'grpc.health.v1', imports: [], text: health },
  ...['v1', 'v1alpha'].map(version => ({
    name: `grpc/reflection/${version}/reflection.proto`,
    package: `grpc.reflection.${version}`,
    imports: [],
    text: reflection.replace('package grpc.reflection.v1;', `package grpc.reflection.${version};`),
  })),
];

/** What our clients cannot ask for: google.rpc.Status, and the service of the kubelet in both of its versions. */
const OTHERS = [statusProto, podResources, podResources.replace('package v1;', 'package v1alpha1;')];

export const SCHEMA: protobuf.Root = parseAll();

/** A service definition for grpc-js, of a server or a client. */
export function serviceOf(name: string): ServiceDefinition {
  const service = SCHEMA.lookupService(name);
  return Object.fromEntries(service.methodsArray.map(method => [method.name, methodOf(service, method)]));
}

/** Encodes a message; its keys are named as in the schema. */
export function encode(type: string, message: object): Buffer {
  return encodeWith(SCHEMA.lookupType(type), message);
}

/** Decodes a message with every field; absent fields get their default. */
export function decode<T>(type: string, bytes: Uint8Array): T {
  return decodeWith(SCHEMA.lookupType(type), bytes) as T;
}

function parseAll(): protobuf.Root {
  const root = new protobuf.Root();
  for (const text of [...PROTO_FILES.map(file => file.text), ...OTHERS]) {
    protobuf.parse(text, root, { keepCase: true });
  }
  root.resolveAll();
  return root;
}

function methodOf(service: protobuf.Service, method: protobuf.Method): MethodDefinition<object, object> {
  const request = service.lookupType(method.requestType);
  const response = service.lookupType(method.responseType);
  return {
    path: `/${service.fullName.slice(1)}/${method.name}`,
    requestStream: method.requestStream ?? false,
    responseStream: method.responseStream ?? false,
    requestSerialize: message => encodeWith(request, message),
    requestDeserialize: bytes => decodeWith(request, bytes),
    responseSerialize: message => encodeWith(response, message),
    responseDeserialize: bytes => decodeWith(response, bytes),
    originalName: method.name,
  };
}

function encodeWith(type: protobuf.Type, message: object): Buffer {
  return Buffer.from(type.encode(type.fromObject(message)).finish());
}

function decodeWith(type: protobuf.Type, bytes: Uint8Array): object {
  return type.toObject(type.decode(bytes), { defaults: true, arrays: true, objects: true, oneofs: true });
}

export interface RemoteMethod {
  /** Absolute path. */
  readonly socketPath: string;
  /** One of the services whose schema is in this folder. */
  readonly service: string;
  readonly method: string;
}

/** What ends a call whose server does not answer, or answers without end. */
interface CallBounds {
  readonly deadlineMs: number;
  /** Maximum size of the answer. */
  readonly maxBytes: number;
}

/**
 * Calls a method without streams, with an empty request.
 * @returns its answer with every field; undefined if the server does not have that method
 * @throws Error with the words of the server, or why there was no answer
 */
export async function callOnce<T>(
  { socketPath, service, method }: RemoteMethod,
  { deadlineMs, maxBytes }: CallBounds,
): Promise<T | undefined> {
  const { path, requestSerialize, responseDeserialize } = serviceOf(service)[method] ?? {};
  if (!path || !requestSerialize || !responseDeserialize)
    throw new Error(`Cannot call "${service}.${method}"`);
  const client = new Client(`unix:${socketPath}`, credentials.createInsecure(), {
    'grpc.max_receive_message_length': maxBytes,
    // A proxy of the environment is for hosts, and this is none.
    'grpc.enable_http_proxy': 0,
  });
  const deadline = Date.now() + deadlineMs;
  try {
    return await new Promise<T>((done, fail) => {
      client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        {},
        { deadline },
        (error, answer) => (error ? fail(error) : done(answer as T)),
      );
    });
  } catch (error) {
    if ((error as ServiceError).code === status.UNIMPLEMENTED) return undefined;
    throw error;
  } finally {
    client.close();
  }
}
