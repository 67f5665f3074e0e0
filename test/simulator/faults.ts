// What may become of a request on its way?
import { setTimeout as sleep } from 'node:timers/promises';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { ApiServer } from '../../src/delegate/api-server.ts';
import type { ApiModel } from './api-model.ts';

/**
 * `fails`: never arrives. `lost`: is done, but the answer never arrives. `twice`: is done again after the next request. `late`: is given
 * up by the client, and done a few requests later. `dies`: the process that would send it is killed. `dies after`: that process is killed
 * once it is done.
 */
export type Fate = 'arrives' | 'fails' | 'lost' | 'twice' | 'late' | 'dies' | 'dies after';
export const FATES: readonly Fate[] = ['fails', 'lost', 'twice', 'late', 'dies', 'dies after'];

/** A way to the model of a server. */
export interface Way {
  /** The fate of the next request. */
  fate(): Fate;
  /** Milliseconds to the server, and back. */
  latencyMs(): number;
  /** Waits; with `setTimeout` unless given. */
  pause?(ms: number): Promise<void>;
}

/** Ends a simulated process: the next one goes on from its files. */
export class Killed extends Error {}

/** A client, and what it has on its way. */
export interface ModelClient extends ApiServer {
  /** Does what is still on its way. */
  drain(): void;
}

/** Requests of others between one that is late and its arrival. */
const LATENESS = 3;

/** A client of the model, as src/delegate/api-server.ts is one of a real server. */
export function clientOf(model: ApiModel, { fate, latencyMs, pause = wait }: Way): ModelClient {
  let late: { readonly run: () => void; after: number }[] = [];
  const arrive = (): void => {
    for (const one of late) one.after--;
    const due = late.filter(({ after }) => after <= 0);
    late = late.filter(({ after }) => after > 0);
    for (const { run } of due) run();
  };
  return {
    async ask(method, path, body, expected = [404]) {
      const what = `${method} ${path}`;
      const chosen = fate();
      if (chosen === 'dies') throw new Killed(what);
      await pause(latencyMs());
      if (chosen === 'fails') throw unreachable(what);
      const copy = structuredClone(body);
      const again = (after: number) => late.push({ after, run: () => void model.handle(method, path, copy) });
      if (chosen === 'late') {
        arrive();
        if (method !== 'GET') again(LATENESS);
        throw unreachable(what);
      }
      const { status, object } = model.handle(method, path, body);
      arrive();
      if (chosen === 'twice' && method !== 'GET') again(1);
      if (chosen === 'dies after') throw new Killed(what);
      await pause(latencyMs());
      if (chosen === 'lost') throw unreachable(what);
      if (expected.includes(status)) return undefined;
      if (status < 300) return object;
      const isBusy = status === 409 || status === 429 || status >= 500;
      throw new CniError(
        isBusy ? ErrorCode.tryAgainLater : ErrorCode.internal,
        `Cannot use the Kubernetes API: ${String(object.message)}`,
        { details: `${what}: status ${status}` },
      );
    },
    listen: () => Promise.reject(new Error('The model has no watches')),
    drain() {
      const due = late;
      late = [];
      for (const { run } of due) run();
    },
  };
}

/** A way without faults. */
export const DIRECT: Way = { fate: () => 'arrives', latencyMs: () => 0 };

function wait(ms: number): Promise<void> {
  return ms > 0 ? sleep(ms) : Promise.resolve();
}

function unreachable(what: string): CniError {
  return new CniError(ErrorCode.tryAgainLater, 'Cannot reach the Kubernetes API: the test cut it off', {
    details: what,
  });
}
