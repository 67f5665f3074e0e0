// What did a verb and each plugin of its chain do, and what was there after them?
import type { PluginEvent, Runtime } from '../chain/run/runtime.ts';

/** A verb as it was played. */
export interface Play<Sight, Value> {
  readonly plugins: readonly { readonly event: PluginEvent; readonly sight: Sight }[];
  /** Without the time that looking took. */
  readonly durationMs: number;
  readonly sight: Sight;
  /** What the verb returned, or why it failed. */
  readonly value?: Value;
  readonly error?: unknown;
}

/** Plays one verb, and looks after each of its plugins. */
export async function play<Sight, Value>(
  verb: (hook: Pick<Runtime, 'onPlugin'>) => Promise<Value>,
  look: () => Sight,
): Promise<Play<Sight, Value>> {
  const plugins: Play<Sight, Value>['plugins'][number][] = [];
  const started = performance.now();
  let lookedMs = 0;
  const onPlugin = (event: PluginEvent) => {
    const looking = performance.now();
    plugins.push({ event, sight: look() });
    lookedMs += performance.now() - looking;
  };
  const end = () => ({ plugins, durationMs: performance.now() - started - lookedMs, sight: look() });
  try {
    const value = await verb({ onPlugin });
    return { ...end(), value };
  } catch (error) {
    return { ...end(), error };
  }
}
