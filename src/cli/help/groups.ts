// In which order does a reader meet the commands?

/** Commands that answer one kind of question, in the order of the usage text. Every command is in one group. */
export const GROUPS: readonly { readonly title: string; readonly commands: readonly string[] }[] = [
  { title: 'Attach containers', commands: ['add', 'check', 'del', 'set', 'attach', 'detach'] },
  {
    title: 'See what is there',
    commands: [
      'ls',
      'who',
      'why-not',
      'log',
      'list',
      'ipam',
      'networks',
      'explain',
      'trace',
      'graph',
      'ui',
      'version',
    ],
  },
  { title: 'Keep a node right', commands: ['doctor', 'repair', 'adopt', 'gc', 'status', 'bundle'] },
  { title: 'Write lists and plugins', commands: ['init', 'validate', 'schema', 'try', 'conformance', 'new'] },
  {
    title: 'Install and exchange executables',
    commands: ['install', 'uninstall', 'completion', 'man', 'compare', 'swap', 'handover'],
  },
  { title: 'Run the daemon', commands: ['daemon', 'ping'] },
];
