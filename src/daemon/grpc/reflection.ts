// How does a client learn which services exist? (gRPC Server Reflection Protocol)

import { type ServerDuplexStream, status } from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import { FileDescriptorProto } from 'protobufjs/ext/descriptor';
import { PROTO_FILES, type ProtoFile, SCHEMA } from './schema.ts';

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
      return toFiles(findFile(request.file_by_filename ?? ''), request.file_by_filename);
    case 'file_containing_symbol':
      return toFiles(findFileOf(request.file_containing_symbol ?? ''), request.file_containing_symbol);
    default:
      return problem(status.UNIMPLEMENTED, 'Cannot find extensions: proto3 has none');
  }
}

function toFiles(files: Uint8Array[] | undefined, name = ''): object {
  if (files === undefined) return problem(status.NOT_FOUND, `Cannot find "${name}": no schema defines it`);
  return { file_descriptor_response: { file_descriptor_proto: files } };
}

function problem(code: number, message: string): object {
  return { error_response: { error_code: code, error_message: message } };
}

/** FileDescriptorProto bytes of a file and of the files that it imports; undefined for a file that is not ours. */
function findFile(name: string): Uint8Array[] | undefined {
  const file = PROTO_FILES.find(one => one.name === name);
  return file && describe(file);
}

/** The same for the file that defines a service, method, message or enumeration. */
function findFileOf(symbol: string): Uint8Array[] | undefined {
  const found = SCHEMA.lookup(symbol) ?? SCHEMA.lookup(symbol.slice(0, symbol.lastIndexOf('.')));
  // The last part of the name may be a method's. A package is not a symbol.
  if (!found || (found instanceof protobuf.Namespace && found.constructor === protobuf.Namespace)) {
    return undefined;
  }
  // The comparison includes the dot, since one package name may be a prefix of another.
  const file = PROTO_FILES.find(one => symbol.startsWith(`${one.package}.`));
  return file && describe(file);
}

function describe(file: ProtoFile): Uint8Array[] {
  const imported = PROTO_FILES.filter(({ name }) => file.imports.includes(name));
  return [file, ...imported].map(one =>
    FileDescriptorProto.encode(FileDescriptorProto.fromObject(toDescriptor(one))).finish(),
  );
}

function toDescriptor({ name, package: pkg, imports }: ProtoFile): object {
  const { nestedArray } = SCHEMA.lookup(pkg) as protobuf.Namespace;
  return {
    name,
    package: pkg,
    dependency: imports,
    messageType: nestedArray.filter(one => one instanceof protobuf.Type).map(toMessage),
    enumType: nestedArray.filter(one => one instanceof protobuf.Enum).map(toEnum),
    service: nestedArray.filter(one => one instanceof protobuf.Service).map(toService),
    syntax: 'proto3',
  };
}

function toMessage(type: protobuf.Type): object {
  const entries = type.fieldsArray.filter(field => field instanceof protobuf.MapField).map(toMapEntry);
  return {
    name: type.name,
    field: type.fieldsArray.map(field => toField(field, type.oneofsArray)),
    nestedType: [...type.nestedArray.filter(one => one instanceof protobuf.Type).map(toMessage), ...entries],
    enumType: type.nestedArray.filter(one => one instanceof protobuf.Enum).map(toEnum),
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

function toEnum({ name, values }: protobuf.Enum): object {
  return { name, value: Object.entries(values).map(([label, number]) => ({ name: label, number })) };
}

function toService(service: protobuf.Service): object {
  return {
    name: service.name,
    method: service.methodsArray.map(
      ({ name, requestType, responseType, requestStream, responseStream }) => ({
        name,
        inputType: service.lookupType(requestType).fullName,
        outputType: service.lookupType(responseType).fullName,
        clientStreaming: requestStream ?? false,
        serverStreaming: responseStream ?? false,
      }),
    ),
  };
}
