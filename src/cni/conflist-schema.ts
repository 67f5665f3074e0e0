// What is the schema of a network configuration list, for authors of one?
import * as z from 'zod/mini';
import { ListedPlugin } from './plugin-config.ts';

/** What the loader accepts as a boolean. */
const Switch = z.union(
  [
    z.boolean(),
    z.string().check(z.regex(/^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$/, 'must be true or false')),
  ],
  'must be true or false',
);

/**
 * The shape of a conflist (SPEC "Configuration format"), for published schemas and for tools that report every mistake at
 * once. {@link parseConflist} accepts the same lists but stops at the first mistake. Keys at this level are
 * case-sensitive, as in the reference.
 */
export const ConflistSchema = z.looseObject({
  /** Schema of this file, for editors; not read. */
  $schema: z.optional(z.string()),
  /** Version of the specification that the plugins are called with; 0.1.0 when absent. */
  cniVersion: z.optional(z.string()),
  /** Versions to choose from; the highest one that the runtime supports is used. Since 1.1.0. */
  cniVersions: z.optional(z.array(z.string())),
  /** Name of the network, unique on a host: starts with a letter or digit, followed by letters, digits, "_", "." and "-". */
  name: z
    .string()
    .check(
      z.regex(
        /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/,
        'must start with a letter or digit and contain only letters, digits, "_", "." and "-"',
      ),
    ),
  /** True: CHECK does nothing for this network. Since 0.4.0. */
  disableCheck: z.optional(Switch),
  /** True: GC does nothing for this network. Since 1.1.0. */
  disableGC: z.optional(Switch),
  /** True: no further plugins are read from the directory next to this file that has the network's name. Since 1.1.0. */
  loadOnlyInlinedPlugins: z.optional(Switch),
  /** The plugins, in order of ADD. May be absent when all plugins are in files next to this one. */
  plugins: z.optional(z.array(ListedPlugin).check(z.minLength(1, 'must contain at least one plugin'))),
});
export type ConflistSchema = z.output<typeof ConflistSchema>;
