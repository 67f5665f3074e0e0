// How does a client learn that the daemon is alive while it works?
import { type Declined, isDeclined, type RunAnswer, SIGN_MS } from './protocol.ts';

/** A sign of life: leading spaces are valid JSON. */
const SIGN = new TextEncoder().encode(' ');

/**
 * The response to a client. An early answer is sent whole. Otherwise the head is sent first, followed by spaces until the answer
 * is ready.
 * @param onGone called if the client disconnects before that
 */
export async function respond(answer: Promise<RunAnswer | Declined>, onGone: () => void): Promise<Response> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => late.resolve(undefined), SIGN_MS);
  const soon = await Promise.race([answer, late.promise]);
  clearTimeout(timer);
  return soon ? whole(soon) : new Response(inPieces(answer, onGone), JSON_TYPE);
}

const JSON_TYPE = { headers: { 'content-type': 'application/json' } };

function whole(answer: RunAnswer | Declined): Response {
  return Response.json(answer, isDeclined(answer) && !answer.begun ? { status: 409 } : {});
}

function inPieces(answer: Promise<RunAnswer | Declined>, onGone: () => void): ReadableStream<Uint8Array> {
  let timer: ReturnType<typeof setInterval>;
  return new ReadableStream({
    start(controller) {
      const send = (bytes: Uint8Array): void => {
        try {
          controller.enqueue(bytes);
        } catch {
          // The client has disconnected; cancel() handles it.
        }
      };
      send(SIGN);
      timer = setInterval(() => send(SIGN), SIGN_MS);
      void answer.then(reply => {
        clearInterval(timer);
        send(new TextEncoder().encode(JSON.stringify(reply)));
        try {
          controller.close();
        } catch {
          // As above.
        }
      });
    },
    cancel() {
      clearInterval(timer);
      onGone();
    },
  });
}
