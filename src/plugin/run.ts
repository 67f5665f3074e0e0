// How does a process become one call of a link?
import { type CniError, toCniError } from '../cni/errors.ts';
import type { PluginDefinition } from './define.ts';
import type { Siblings } from './invocation.ts';
import { serve, supportedVersions } from './serve.ts';
import { readStdin, writeAll } from './stdio.ts';

/**
 * Serves the invocation this process was started for and exits. Without `CNI_COMMAND` it tells a person what it is.
 * @param siblings other links of this executable, for delegation without a process
 * @param stdin what was on standard input, when it was read already
 */
export async function runPlugin(
  definition: PluginDefinition,
  siblings?: Siblings,
  stdin?: string,
): Promise<never> {
  if (!process.env.CNI_COMMAND) {
    writeAll(2, aboutText(definition));
    process.exit(0);
  }
  // A promise that nobody waits for must not cost the caller its answer.
  process.on('uncaughtException', thrown => endWith(toCniError(thrown), thrown));
  process.on('unhandledRejection', thrown => endWith(toCniError(thrown), thrown));
  const reply = await serve(
    definition,
    { env: process.env, readRequest: () => stdin ?? readStdin() },
    siblings,
  );
  if (reply.stdout) writeAll(1, reply.stdout);
  await reply.log.flush();
  process.exit(reply.exitCode);
}

function endWith(error: CniError, thrown: unknown): never {
  writeAll(1, JSON.stringify(error.toReply(), null, 4));
  writeAll(2, `${thrown instanceof Error ? thrown.stack : String(thrown)}\n`);
  process.exit(1);
}

/** What a link says when it is called by hand. */
export function aboutText(definition: PluginDefinition): string {
  const versions = supportedVersions(definition);
  return `CNI ${definition.name} plugin (catena)\nCNI protocol versions supported: ${versions.join(', ')}\n`;
}
