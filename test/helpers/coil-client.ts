// How does a client written for coil's proto talk to a daemon?
import path from 'node:path';
import { Client, credentials, makeGenericClientConstructor, type ServiceError } from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import { ROOT } from './source-tree.ts';

/** The error detail as coil's plugin reads it. */
export interface CniErrorDetail {
  readonly code: number;
  readonly msg: string;
  readonly details: string;
}

/** The outcome of a call: a reply, or a status with its details. */
export type Answer =
  | { readonly ok: Record<string, unknown> }
  | { readonly code: number; readonly message: string; readonly errors: readonly CniErrorDetail[] };

/** A connected client. */
export interface CoilClient {
  call(method: string, request: object, options?: { deadlineMs?: number }): Promise<Answer>;
  close(): void;
}

/** Connects to a socket, using the proto that the package ships. */
export function connectCoil(socketPath: string): CoilClient {
  const root = new protobuf.Root().loadSync(path.join(ROOT, 'src/daemon/cni.proto'), { keepCase: true });
  const service = root.lookupService('pkg.cnirpc.CNI');
  const methods = service.methodsArray.map(method => {
    const [request, response] = [method.requestType, method.responseType].map(name =>
      service.lookupType(name),
    );
    const definition = {
      path: `/pkg.cnirpc.CNI/${method.name}`,
      requestStream: false,
      responseStream: false,
      requestSerialize: (value: object) =>
        Buffer.from(request?.encode(request.fromObject(value)).finish() ?? []),
      requestDeserialize: (bytes: Buffer) => bytes,
      responseSerialize: (value: Buffer) => value,
      responseDeserialize: (bytes: Buffer) => response?.decode(bytes).toJSON(),
    };
    return [method.name, definition] as const;
  });
  const Constructor = makeGenericClientConstructor(Object.fromEntries(methods), 'CNI');
  const client = new Constructor(`unix:${socketPath}`, credentials.createInsecure());
  return {
    call: (method, request, { deadlineMs = 20_000 } = {}) =>
      new Promise(done => {
        const deadline = Date.now() + deadlineMs;
        const reply = (error: ServiceError | null, ok: Record<string, unknown>): void =>
          done(error ? toAnswer(error, root) : { ok });
        (client[method] as (...args: unknown[]) => void).call(client, request, { deadline }, reply);
      }),
    close: () => Client.prototype.close.call(client),
  };
}

function toAnswer({ code, details, metadata }: ServiceError, root: protobuf.Root): Answer {
  const [packed] = metadata.get('grpc-status-details-bin');
  const errors = packed instanceof Buffer ? readDetails(packed, root) : [];
  return { code, message: details, errors };
}

/** google.rpc.Status, by field numbers: 3 is the list of details, in each of which 1 is a type and 2 its bytes. */
function readDetails(status: Buffer, root: protobuf.Root): CniErrorDetail[] {
  const fieldsOf = (bytes: Uint8Array): [number, Uint8Array][] => {
    const reader = protobuf.Reader.create(bytes);
    const fields: [number, Uint8Array][] = [];
    while (reader.pos < reader.len) {
      const tag = reader.uint32();
      if ((tag & 7) === 2) fields.push([tag >>> 3, reader.bytes()]);
      else reader.skipType(tag & 7);
    }
    return fields;
  };
  const details = fieldsOf(status).filter(([number]) => number === 3);
  return details.map(([, any]) => {
    const fields = new Map(fieldsOf(any));
    const type = Buffer.from(fields.get(1) ?? []).toString();
    if (type !== 'type.googleapis.com/pkg.cnirpc.CNIError')
      throw new Error(`Cannot read detail of type ${type}`);
    const detail = root.lookupType('pkg.cnirpc.CNIError');
    return detail.toObject(detail.decode(fields.get(2) ?? new Uint8Array()), {
      defaults: true,
    }) as CniErrorDetail;
  });
}
