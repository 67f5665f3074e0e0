// How does a client learn whether a service works? (gRPC Health Checking Protocol)
import { type ServerUnaryCall, type ServerWritableStream, type sendUnaryData, status } from '@grpc/grpc-js';

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
      call.on('cancelled', () => clearInterval(timer));
      call.on('close', () => clearInterval(timer));
      call.on('error', () => clearInterval(timer));
    },
  };
}
