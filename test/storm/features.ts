// What may be left out of a storm?

/** Callers, kinds of action and kinds of trouble, by the names that `--only` and `--without` take. */
export const FEATURES = [
  ...['command', 'plugins', 'reference', 'check', 'pair', 'kill', 'cwd', 'foreign', 'port'],
  ...['set', 'attach', 'detach', 'forget'],
  ...['gc', 'oldgc', 'repair', 'stranger', 'swap', 'daemon', 'watch', 'freeze', 'second', 'upgrade'],
  ...['namespace', 'collision', 'rules', 'run', 'journal', 'leases', 'boot', 'future', 'neighbour'],
] as const;

export type Feature = (typeof FEATURES)[number];
