// What may become of a request on its way?
import { setTimeout as sleep } from 'node:timers/promises';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import type { ApiServer } from '../../src/delegate/api-server.ts';
import type { ApiModel } from './api-model.ts';

/** `fails`: never arrives. `lost`: is done, but the answer never arrives. `twice`: is done again after the next request. */
export type Fate = 'arrives' | 'fails' | 'lost' | 'twice';
export const FATES: readonly Fate[] = ['fails', 'lost', 'twice'];

/** A way to the model of a server. */
export interface Way {
  /** The fate of the next request. */
  fate(): Fate;
  /** Milliseconds to the server, and back. */
  latencyMs(): number;
}

/** A client of the model, as src/delegate/api-server.ts is one of a real server. */
export function clientOf(model: ApiModel, { fate, latencyMs }: Way): ApiServer {
  const late: (() => void)[] = [];
  return {
    async ask(method, path, body, expected = [404]) {
      const what = `${method} ${path}`;
      const chosen = fate();
      await pause(latencyMs());
      if (chosen === 'fails') throw unreachable(what);
      const copy = structuredClone(body);
      const { status, object } = model.handle(method, path, body);
      for (const again of late.splice(0)) again();
      if (chosen === 'twice' && method !== 'GET') late.push(() => model.handle(method, path, copy));
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
  };
}

/** A way without faults. */
export const DIRECT: Way = { fate: () => 'arrives', latencyMs: () => 0 };

function pause(ms: number): Promise<void> {
  return ms > 0 ? sleep(ms) : Promise.resolve();
}

function unreachable(what: string): CniError {
  return new CniError(ErrorCode.tryAgainLater, 'Cannot reach the Kubernetes API: the test cut it off', {
    details: what,
  });
}
