// How does a plugin process start without loading its library before it is needed?
import type { PluginProcess, StartPlugin } from './exec-plugin.ts';

/**
 * Starts an executable as a separate process: {@link startProcess} of exec-plugin.ts, behind an `import()`. Loading
 * execa takes as long as a plugin does (5 ms), and a chain that is served by a worker does not need it.
 */
export const startPlugin: StartPlugin = invocation => {
  const starting = import('./exec-plugin.ts').then(({ startProcess }) => startProcess(invocation));
  return {
    send: async request => (await starting).send(request),
    discard: () => void starting.then(process => process.discard()),
  } satisfies PluginProcess;
};
