// In which order does a reader meet the commands?

/** Commands that answer one kind of question, in the order of the usage text. Every command is in one group. */
export const GROUPS: readonly { readonly title: string; readonly commands: readonly string[] }[] = [
  { title: 'Attach containers', commands: ['add', 'check', 'del', 'set', 'attach', 'detach'] },
  { title: 'See what is there', commands: ['ls', 'who', 'why-not', 'log', 'ipam', 'networks', 'ui'] },
  { title: 'Keep a node right', commands: ['doctor', 'repair', 'gc', 'status'] },
  { title: 'Write lists and plugins', commands: ['init', 'validate', 'try', 'conformance'] },
  {
    title: 'Install and exchange executables',
    commands: ['install', 'uninstall', 'compare', 'swap', 'handover'],
  },
  { title: 'Run the daemon', commands: ['daemon'] },
  { title: 'Read', commands: ['help'] },
];
