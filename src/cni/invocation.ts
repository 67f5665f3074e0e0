// What does one call of a plugin consist of, besides the executable?

/**
 * What a plugin's process gets from its parent (SPEC "Section 2: Execution Protocol"). The client of the daemon, the daemon, a
 * runner and a worker pass it on as it is, so a plugin sees the same call wherever it is served.
 */
export interface Invocation {
  /** The complete environment. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Standard input: the request, a JSON object as text. */
  readonly stdin: string;
  /** Directory against which relative paths are resolved; the working directory of the process that serves the call unless given. */
  readonly cwd?: string | undefined;
}
