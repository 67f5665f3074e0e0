// How does a user learn what to type?

import { type Command, type CommandOption, type CommandTable, optionsOf } from './command.ts';
import { renderColumns, wrap } from './terminal/lines.ts';

/** What a command line does, and the line, which can be copied. */
type Example = readonly [text: string, line: string];

/** Examples of each command. A test runs every line on a node that has the network `web-net` and the namespace `web`. */
export const EXAMPLES: Readonly<Record<string, readonly Example[]>> = {
  add: [
    ['attach a namespace made by "ip netns add web"', 'catena add web-net web'],
    ['forward port 8080 of the host to port 80', 'catena add web-net web --ifname eth1 -p 8080:80'],
  ],
  check: [['is the attachment intact?', 'catena check web-net web']],
  del: [['detach it, with the interface that add was given', 'catena del web-net web --ifname eth1']],
  set: [['forward another port, without a restart', 'catena set /run/netns/web eth0 -p 8081:80']],
  attach: [['give the container one more network', 'catena attach /run/netns/web back-net']],
  detach: [['take that network away', 'catena detach /run/netns/web back-net']],
  ls: [
    ['what is attached', 'catena ls'],
    ['run CHECK of everything, and fail if something is broken', 'catena ls --check'],
    ['names only, for scripts', 'catena ls --network web-net --output name'],
    ['draw the node with characters', 'catena ls --output tree'],
    ['as an image for a report', 'catena ls --output svg'],
    ['what a crash left to be undone', 'catena ls --unsettled'],
  ],
  who: [
    ['whose address is this?', 'catena who 10.99.0.2'],
    ['who forwards this port?', 'catena who :8081'],
  ],
  'why-not': [
    ['why does this port not answer?', 'catena why-not :8081'],
    ['why can this container not reach that host?', 'catena why-not web 1.1.1.1:443'],
  ],
  log: [
    ['what changed within the last hour', 'catena log --since 1h'],
    ['recent requests that were traced', 'catena log --requests'],
  ],
  ipam: [
    ['which addresses are leased', 'catena ipam ls web-net'],
    ['the same for another program', 'catena ipam ls web-net --output yaml'],
    ['why an address is not free', 'catena ipam why web-net 10.99.0.2'],
  ],
  networks: [
    ['which file do runtimes use, and why?', 'catena networks --why'],
    ['which CNI versions its plugins support', 'catena networks --versions web-net'],
  ],
  ui: [['open the printed address in a browser on this machine', 'catena ui']],
  doctor: [
    ['examine the node', 'catena doctor'],
    ['send packets for all that is attached', 'catena doctor --traffic'],
    ['an archive for a bug report', 'catena doctor --bundle report.tar.gz'],
    ['one that names neither pods nor addresses', 'catena doctor --bundle public.tar.gz --anonymous'],
  ],
  repair: [['what would be repaired', 'catena repair --dry-run']],
  gc: [['what would be deleted if nothing were valid', 'catena gc web-net --all --dry-run']],
  status: [['could a container be attached now?', 'catena status web-net']],
  init: [
    ['answer four questions, with free subnets suggested', 'catena init'],
    [
      'without a question: a bridge with free subnets, ports and rates',
      'catena init front-net --kind bridge --subnet auto --ports --rates',
    ],
    ['begin a plugin of your own', 'catena init motd --plugin --dir ./motd'],
  ],
  validate: [
    ['check all lists of the node', 'catena validate /etc/cni/net.d'],
    ['check one list, before its plugins are installed', 'catena validate --files-only web-net.conflist'],
    ['each line of a network in a sentence', 'catena validate --explain web-net'],
    ['the schema of the bridge plugin, for an editor', 'catena validate --schema bridge'],
    ['the schema of what doctor --json prints', 'catena validate --schema Diagnosis'],
  ],
  try: [
    ['run a list where it can do no harm', 'catena try web-net.conflist'],
    ['the same with a network of this node', 'catena try web-net'],
  ],
  conformance: [
    ['examine one plugin of a list', 'catena conformance /opt/cni/bin/tuning --from web-net.conflist'],
  ],
  install: [
    ['what would be installed where', 'catena install --dry-run'],
    [
      'the executables, and completion for bash, zsh and fish',
      'catena install --share-dir /usr/local/share --dry-run',
    ],
    ['a systemd unit to look at', 'catena install --print systemd'],
  ],
  uninstall: [['what would be removed', 'catena uninstall --dry-run']],
  compare: [
    [
      'may these executables replace ours?',
      'catena compare web-net.conflist --with /usr/lib/cni --scene life',
    ],
  ],
  swap: [['which executable a plugin of a network has', 'catena swap web-net --plugin tuning']],
  handover: [['would these executables delete what stands?', 'catena handover --to /usr/lib/cni --dry-run']],
  daemon: [
    ['does a daemon run?', 'catena daemon --status'],
    ['does it answer?', 'catena daemon --ping'],
  ],
  help: [
    ['arguments, options and examples of a command', 'catena help attach'],
    ['what an error code means', 'catena help 11'],
    ['the page of the manual', 'catena help attach --man'],
    [
      'a file that bash reads when it starts, or: source <(catena help --completion bash)',
      'catena help --completion bash',
    ],
  ],
};

/** Columns of the usage text where the output is no terminal, and the most that it takes: longer lines are hard to read. */
const [PLAIN, MOST] = [100, 120];

/**
 * What the tool is and which commands it has.
 * @param width columns of the terminal, if there is one
 */
export function renderUsage({ commands: all }: CommandTable, width?: number): string {
  const columns = fit(width);
  const summaries = new Map(all.map(({ name, summary }) => [name, summary]));
  const left = Math.max(...all.map(({ name }) => name.length));
  return [
    'Usage: catena <command> [options]',
    '',
    'Runs chains of CNI plugins.',
    ...GROUPS.flatMap(({ title, commands }) => [
      '',
      `${title}:`,
      ...renderColumns(
        commands.map(name => [name.padEnd(left), summaries.get(name) ?? '']),
        columns,
      ),
    ]),
    '',
    ...wrap(
      'catena help <command> shows arguments, options and examples of a command; catena --version shows the version.',
      columns,
      '',
      '',
    ),
    '',
  ].join('\n');
}

/**
 * One command's arguments, options and examples.
 * @param width columns of the terminal, if there is one
 */
export function renderCommandUsage(
  { name, usage, summary, options }: Command,
  { globalOptions }: CommandTable,
  width?: number,
): string {
  const columns = fit(width);
  const rows = Object.entries(optionsOf(options, { globalOptions })).map(
    ([option, spec]) => [renderOption(option, spec), spec.help] as const,
  );
  const examples = EXAMPLES[name] ?? [];
  return [
    ...wrap(`Usage: ${['catena', name, usage, '[options]'].filter(Boolean).join(' ')}`, columns),
    '',
    ...wrap(`${summary[0]?.toUpperCase()}${summary.slice(1)}.`, columns, '', ''),
    '',
    ...wrap('Options (the environment variable and the default in parentheses):', columns, '', ''),
    ...renderColumns(rows, columns),
    ...(examples.length ? ['', 'Examples:'] : []),
    // A command line is never broken: it is there to be copied.
    ...examples.flatMap(([text, line]) => [...wrap(`# ${text}`, columns, '  ', '  # '), `  ${line}`]),
    '',
  ].join('\n');
}

function fit(width = PLAIN): number {
  return Math.min(width, MOST);
}

function renderOption(name: string, { placeholder, short }: CommandOption): string {
  const typed = short === undefined ? `--${name}` : `-${short}, --${name}`;
  return placeholder === undefined ? typed : `${typed} ${placeholder}`;
}

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
