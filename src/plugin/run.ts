// How does a process become one call of a link?
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import type { PluginDefinition } from './define.ts';
import type { Siblings } from './invocation.ts';
import { serve, supportedVersions } from './serve.ts';
import { readStdin, writeAll } from './stdio.ts';

/**
 * Serves the invocation this process was started for and exits. Without `CNI_COMMAND` it tells a person what it is.
 * @param siblings other links of this executable, for delegation without a process
 * @param again an ADD of this invocation may have run already, and nobody knows how far: it is taken back first, which
 *   is what a runtime does that gets no answer (SPEC "DEL")
 */
export async function runPlugin(
  definition: PluginDefinition,
  siblings?: Siblings,
  { again = false }: { again?: boolean } = {},
): Promise<never> {
  if (!process.env.CNI_COMMAND) {
    writeAll(2, aboutText(definition));
    process.exit(0);
  }
  // A promise that nobody waits for must not cost the caller its answer.
  process.on('uncaughtException', thrown => endWith(toCniError(thrown), thrown));
  process.on('unhandledRejection', thrown => endWith(toCniError(thrown), thrown));
  const { env } = process;
  if (again && env.CNI_COMMAND === 'ADD')
    await serve(definition, { env: { ...env, CNI_COMMAND: 'DEL' }, readRequest }, siblings);
  const reply = await serve(definition, { env, readRequest }, siblings);
  if (reply.stdout) writeAll(1, reply.stdout);
  await reply.log.flush();
  process.exit(reply.exitCode);
}

function readRequest(): string {
  try {
    return readStdin();
  } catch (cause) {
    throw new CniError(ErrorCode.ioFailure, (cause as Error).message, { cause });
  }
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
