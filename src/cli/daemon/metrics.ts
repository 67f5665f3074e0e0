// Where does the daemon serve its metrics, and what does it say about that?
import { listenForMetrics, type MetricsAddress, parseMetricsAddress } from '../../daemon/metrics-listener.ts';
import { type CommandCall, UsageError } from '../command.ts';

/**
 * The address of `--metrics`.
 * @throws UsageError for an address that cannot be used
 */
export function metricsAddressOf(call: CommandCall): MetricsAddress | undefined {
  const text = call.text('metrics');
  try {
    return text === undefined ? undefined : parseMetricsAddress(text);
  } catch (cause) {
    throw new UsageError((cause as Error).message, { cause });
  }
}

/** Serves metrics at the address, now or once it is free. @returns a function that stops this */
export function serveMetrics(
  call: CommandCall,
  address: MetricsAddress,
  metrics: Parameters<typeof listenForMetrics>[1],
): () => void {
  const at = call.text('metrics');
  return listenForMetrics(address, metrics, {
    failing: problem => call.err(`catena: warning: cannot serve metrics at ${at} yet: ${problem}\n`),
    listening: () => call.err(`catena: metrics at ${at}\n`),
  });
}
