// How does a program answer the gRPC of an old kubelet?
//
// A kubelet of 1.20 names the path of a plugin's socket as the authority of its calls, which HTTP/2 forbids: libraries end such a stream. So these are
// the few frames that a call consists of (RFC 9113). Headers of a request are not read: its message says which call it is.
import net from 'node:net';

/** A server of calls. */
export interface Listening {
  /** Ends it and its connections. */
  close(): void;
}

const PREFACE = 24;
const HEADER = 9;
const TYPE = { data: 0, headers: 1, settings: 4, ping: 6 };
const FLAG = { ack: 1, endStream: 1, endHeaders: 4 };
/** RFC 7541: `:status: 200` of the static table, and literals that are not indexed. */
const ANSWER = Buffer.concat([Buffer.from([0x88, 0x0f, 0x10, 16]), Buffer.from('application/grpc')]);
const END = Buffer.concat([
  Buffer.from([0, 11]),
  Buffer.from('grpc-status'),
  Buffer.from([1]),
  Buffer.from('0'),
]);

/** @param answerTo the message of a request; the stream of an answer may stay open */
export async function listenForCalls(
  path: string,
  answerTo: (message: Buffer) => { readonly answer: Buffer; readonly isOpen: boolean },
): Promise<Listening> {
  const open = new Set<net.Socket>();
  const server = net.createServer(socket => {
    open.add(socket);
    socket.on('close', () => open.delete(socket)).on('error', () => socket.destroy());
    const send = (type: number, flags: number, stream: number, body: Buffer = Buffer.alloc(0)) => {
      const header = Buffer.alloc(HEADER);
      header.writeUIntBE(body.length, 0, 3);
      header[3] = type;
      header[4] = flags;
      header.writeUInt32BE(stream, 5);
      socket.write(Buffer.concat([header, body]));
    };
    send(TYPE.settings, 0, 0);
    const bodies = new Map<number, Buffer>();
    const take = (type: number, flags: number, stream: number, body: Buffer): void => {
      if (type === TYPE.settings && !(flags & FLAG.ack)) send(TYPE.settings, FLAG.ack, 0);
      if (type === TYPE.ping && !(flags & FLAG.ack)) send(TYPE.ping, FLAG.ack, 0, body);
      if (type !== TYPE.data) return;
      const all = Buffer.concat([bodies.get(stream) ?? Buffer.alloc(0), body]);
      bodies.set(stream, all);
      if (!(flags & FLAG.endStream)) return;
      bodies.delete(stream);
      // One byte says whether it is compressed, four how long it is.
      const { answer, isOpen } = answerTo(all.subarray(5));
      const length = Buffer.alloc(5);
      length.writeUInt32BE(answer.length, 1);
      send(TYPE.headers, FLAG.endHeaders, stream, ANSWER);
      send(TYPE.data, 0, stream, Buffer.concat([length, answer]));
      if (!isOpen) send(TYPE.headers, FLAG.endHeaders | FLAG.endStream, stream, END);
    };
    let left = Buffer.alloc(0);
    let skipped = 0;
    socket.on('data', chunk => {
      left = Buffer.concat([left, Buffer.from(chunk)]);
      const skip = Math.min(PREFACE - skipped, left.length);
      skipped += skip;
      left = left.subarray(skip);
      while (left.length >= HEADER && left.length >= HEADER + left.readUIntBE(0, 3)) {
        const size = left.readUIntBE(0, 3);
        take(
          left[3] ?? 0,
          left[4] ?? 0,
          left.readUInt32BE(5) & 0x7fffffff,
          left.subarray(HEADER, HEADER + size),
        );
        left = left.subarray(HEADER + size);
      }
    });
  });
  await new Promise<void>((done, fail) => server.once('error', fail).listen(path, done));
  return {
    close() {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}
