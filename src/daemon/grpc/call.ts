// How is a method of another program's service called, once?
import { Client, credentials, type ServiceError, status } from '@grpc/grpc-js';
import { serviceOf } from './schema.ts';

/** A method, on a unix socket. */
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
