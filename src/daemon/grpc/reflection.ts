// How does a client learn which services exist? (gRPC Server Reflection Protocol)
import { type ServerDuplexStream, status } from '@grpc/grpc-js';
import { findFile, findFileOf } from './descriptors.ts';

/** A question: one member of the oneof is set, and `message_request` names it. */
export interface ReflectionRequest {
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
