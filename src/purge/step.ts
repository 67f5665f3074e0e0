// What happens to one thing that is neither an installed file nor an attachment?

/** Outcome, or plan, for a table, a device, a file or a directory. */
export interface PurgeStep {
  /** `keep`: others use it, or it is not known to be ours. */
  readonly action: 'remove' | 'keep';
  /** Human-readable: `table "inet catena_portmap"`. */
  readonly what: string;
  readonly why?: string;
}
