// A watcher of the daemon: prints each request as it ends, with the time that every plugin took.
//
//   catena daemon &
//   npx bun examples/watch-daemon.ts /run/catena/catena.sock
export interface Trace {
  readonly id: string;
  readonly verb: string;
  readonly network: string;
  readonly containerId: string;
  readonly plugins: readonly { readonly type: string; readonly durationMs: number }[];
}

const [socket = '/run/catena/catena.sock', limit = 'Infinity'] = process.argv.slice(2);
const seen = new Set<string>();
let printed = 0;

while (printed < Number(limit)) {
  const response = await fetch('http://catena/v1/traces', { unix: socket });
  const { items } = (await response.json()) as { readonly items: readonly Trace[] };
  for (const { id, verb, network, containerId, plugins } of items.filter(trace => !seen.has(trace.id))) {
    seen.add(id);
    const times = plugins.map(({ type, durationMs }) => `${type} ${durationMs.toFixed(1)} ms`);
    console.log(`${verb} ${network} ${containerId}: ${times.join(', ')}`);
    printed += 1;
  }
  await Bun.sleep(200);
}
