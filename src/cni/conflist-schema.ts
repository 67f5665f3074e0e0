// How does a network configuration list look, as a schema for those who write one?
import * as z from 'zod/mini';
import { PluginConfig } from './plugin-config.ts';

/** What the loader takes for a boolean. */
const Switch = z.union(
  [
    z.boolean(),
    z.string().check(z.regex(/^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$/, 'must be true or false')),
  ],
  'must be true or false',
);

/**
 * The shape of a list (SPEC "Configuration format"), for published schemas and for tools that report every mistake at
 * once; {@link parseConflist} takes the same lists and stops at the first mistake. Keys at this level are
 * case-sensitive, as in the reference.
 */
export const ConflistSchema = z.looseObject({
  /** Schema of this file, for editors; not read. */
  $schema: z.optional(z.string()),
  /** Version of the specification that the links are called with; 0.1.0 when absent. */
  cniVersion: z.optional(z.string()),
  /** Versions to choose from; the highest one that the runtime speaks is used. Since 1.1.0. */
  cniVersions: z.optional(z.array(z.string())),
  /** Name of the network, unique on a host: starts with a letter or digit, goes on with these, "_", "." and "-". */
  name: z
    .string()
    .check(
      z.regex(
        /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/,
        'must start with a letter or digit and hold only letters, digits, "_", "." and "-"',
      ),
    ),
  /** True: CHECK does nothing for this network. Since 0.4.0. */
  disableCheck: z.optional(Switch),
  /** True: GC does nothing for this network. Since 1.1.0. */
  disableGC: z.optional(Switch),
  /** True: no further links are read from the directory beside this file that is named like the network. Since 1.1.0. */
  loadOnlyInlinedPlugins: z.optional(Switch),
  /** The links, in order of ADD. May be absent when all links stand in files beside this one. */
  plugins: z.optional(z.array(PluginConfig).check(z.minLength(1, 'must hold at least one link'))),
});
export type ConflistSchema = z.output<typeof ConflistSchema>;
