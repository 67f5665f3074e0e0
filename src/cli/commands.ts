// Which commands does the tool have, and which options and arguments do they take?
import type { Command, CommandOption } from './command.ts';

/** Options of every command. */
export const GLOBAL_OPTIONS: Readonly<Record<string, CommandOption>> = {
  help: { type: 'boolean', help: 'show how the command is used' },
  json: { type: 'boolean', help: 'print JSON; errors as the CNI specification has them' },
};

const CONF_DIR: CommandOption = {
  type: 'string',
  placeholder: '<dir>',
  help: 'directory of network configurations (NETCONFPATH; /etc/cni/net.d)',
};

const BIN_DIR: CommandOption = {
  type: 'string',
  multiple: true,
  placeholder: '<dir>',
  help: 'directory of plugins, repeatable (CNI_PATH; /opt/cni/bin)',
};

const IFNAME: CommandOption = {
  type: 'string',
  placeholder: '<name>',
  help: 'interface in the container (eth0)',
};

const DRY_RUN: CommandOption = { type: 'boolean', help: 'show what would be done and why, and do nothing' };

const CAP: CommandOption = {
  type: 'string',
  placeholder: '<json>',
  help: 'capability arguments, instead of the two ports and the rates that are offered',
};

const IGNORE: CommandOption = {
  type: 'string',
  multiple: true,
  placeholder: '<pattern>',
  help: 'a regular expression for differences that are intended, repeatable',
};

const SCENE: CommandOption = {
  type: 'string',
  multiple: true,
  placeholder: '<name>',
  help: 'play this scene only (life, twice, …), repeatable (all)',
};

/** Options of commands that call plugins in temporary namespaces. */
const LAB_OPTIONS: Readonly<Record<string, CommandOption>> = {
  'bin-dir': {
    type: 'string',
    multiple: true,
    placeholder: '<dir>',
    help: 'directory of plugins, repeatable (that of this executable)',
  },
  ifname: IFNAME,
  args: { type: 'string', placeholder: '<K=V;…>', help: 'arguments for the plugins' },
  cap: CAP,
};

const CACHE_DIR: CommandOption = {
  type: 'string',
  placeholder: '<dir>',
  help: 'directory of the result cache (CATENA_CNI_CACHE_DIR; /var/lib/cni)',
};

const ETC_DIR: CommandOption = {
  type: 'string',
  placeholder: '<dir>',
  help: "directory of the runtimes' own configurations (/etc)",
};

const INSTALL_BIN_DIR: CommandOption = {
  type: 'string',
  multiple: true,
  placeholder: '<dir>',
  help: 'directory of plugins, the first gets the executables, repeatable (/opt/cni/bin)',
};

const STATE_DIR: CommandOption = {
  type: 'string',
  placeholder: '<dir>',
  help: 'directory of the journal of attachments (CATENA_STATE_DIR; /var/lib/catena)',
};

const TRACE_DIR: CommandOption = {
  type: 'string',
  placeholder: '<dir>',
  help: 'directory of traces (CATENA_TRACE_DIR; traces below the run directory)',
};

const NETWORK_OPTIONS: Readonly<Record<string, CommandOption>> = {
  'conf-dir': CONF_DIR,
  file: {
    type: 'string',
    placeholder: '<conflist>',
    help: 'take the network from this file instead of the directory',
  },
  'bin-dir': BIN_DIR,
  'cni-cache-dir': CACHE_DIR,
  'state-dir': STATE_DIR,
  timeout: {
    type: 'string',
    multiple: true,
    placeholder: '<seconds>',
    help: 'time each plugin may take (60); del=120 is for one verb, repeatable',
  },
  separate: {
    type: 'boolean',
    help: 'start every link as a process of its own, also those of this executable',
  },
};

/** Options of commands that run a chain. */
const CHAIN_OPTIONS: Readonly<Record<string, CommandOption>> = {
  ...NETWORK_OPTIONS,
  trace: {
    type: 'boolean',
    help: 'keep a trace of the request, for catena trace (CATENA_TRACE_DIR; traces below the run directory)',
  },
};

const ATTACHMENT_OPTIONS: Readonly<Record<string, CommandOption>> = {
  ...CHAIN_OPTIONS,
  'container-id': {
    type: 'string',
    placeholder: '<id>',
    help: "id of the container (derived from the namespace's path, as cnitool does)",
  },
  ifname: { type: 'string', placeholder: '<name>', help: 'interface in the container (CNI_IFNAME; eth0)' },
  args: { type: 'string', placeholder: '<K=V;…>', help: 'arguments for the plugins (CNI_ARGS)' },
  cap: {
    type: 'string',
    placeholder: '<json>',
    help: 'capability arguments, {"portMappings": […]} (CAP_ARGS)',
  },
};

const ATTACHMENT = { usage: '<network> <netns>', positionals: { min: 2, max: 2 } } as const;
const NETWORK = { usage: '<network>', positionals: { min: 1, max: 2 } } as const;

/** Every command, in the order of the usage text. */
export const COMMANDS: readonly Command[] = [
  {
    name: 'add',
    summary: 'attach a network namespace to a network and print the result',
    ...ATTACHMENT,
    options: ATTACHMENT_OPTIONS,
    load: () => import('./commands/add.ts'),
  },
  {
    name: 'check',
    summary: 'ask every link whether its part of an attachment still stands',
    ...ATTACHMENT,
    options: ATTACHMENT_OPTIONS,
    load: () => import('./commands/check.ts'),
  },
  {
    name: 'del',
    summary: 'detach a network namespace from a network',
    ...ATTACHMENT,
    options: ATTACHMENT_OPTIONS,
    load: () => import('./commands/del.ts'),
  },
  {
    name: 'gc',
    summary: 'delete the attachments of a network that are not valid any more',
    ...NETWORK,
    options: {
      ...CHAIN_OPTIONS,
      valid: {
        type: 'string',
        multiple: true,
        placeholder: '<id>/<ifname>',
        help: 'an attachment to keep, repeatable',
      },
      all: { type: 'boolean', help: 'keep none' },
      foreign: {
        type: 'boolean',
        help: 'keep none that is on no record here either, though it may be in use',
      },
      'dry-run': DRY_RUN,
    },
    load: () => import('./commands/gc.ts'),
  },
  {
    name: 'repair',
    summary: 'take down what a crash left, and put back what others took away from attachments',
    usage: '[<network>]',
    positionals: { min: 0, max: 1 },
    options: {
      ...only(NETWORK_OPTIONS, 'conf-dir', 'bin-dir', 'cni-cache-dir', 'state-dir', 'timeout', 'separate'),
      foreign: {
        type: 'boolean',
        help: 'run ADD again of chained links that are not ours, when their CHECK fails',
      },
      'dry-run': { type: 'boolean', help: 'show what is wrong, and do nothing' },
    },
    load: () => import('./commands/repair.ts'),
  },
  {
    name: 'adopt',
    summary: 'take attachments that other runtimes made into the journal, for repair and gc',
    usage: '[<network>]',
    positionals: { min: 0, max: 1 },
    options: {
      ...only(NETWORK_OPTIONS, 'conf-dir', 'bin-dir', 'cni-cache-dir', 'state-dir'),
      'dry-run': DRY_RUN,
    },
    load: () => import('./commands/adopt.ts'),
  },
  {
    name: 'status',
    summary: 'ask every link whether it could attach a container now',
    ...NETWORK,
    options: CHAIN_OPTIONS,
    load: () => import('./commands/status.ts'),
  },
  {
    name: 'list',
    summary: 'show the networks that are configured and the attachments on record',
    usage: '',
    positionals: { min: 0, max: 0 },
    options: { 'conf-dir': CONF_DIR, 'cni-cache-dir': CACHE_DIR, 'state-dir': STATE_DIR },
    load: () => import('./commands/list.ts'),
  },
  {
    name: 'networks',
    summary: 'show every file of the configuration directory, and which ones container runtimes take',
    usage: '',
    positionals: { min: 0, max: 0 },
    options: {
      why: { type: 'boolean', help: 'say of each file and runtime why it is taken or not' },
      ...only(NETWORK_OPTIONS, 'conf-dir', 'bin-dir', 'timeout'),
      'files-only': { type: 'boolean', help: 'do not ask the links for their versions' },
      'max-conf-num': {
        type: 'string',
        placeholder: '<number>',
        help: "containerd's max_conf_num: how many files it reads, 0 for all (as configured, else 1)",
      },
      'default-network': {
        type: 'string',
        placeholder: '<name>',
        help: "CRI-O's cni_default_network (as configured, else none: the first file by name)",
      },
      etc: ETC_DIR,
    },
    load: () => import('./commands/networks.ts'),
  },
  {
    name: 'ipam',
    summary: 'show who holds which address of host-local, or why, or free one',
    usage: '<ls, why or free> [<network>] [<address>]',
    positionals: { min: 1, max: 3 },
    options: {
      'data-dir': {
        type: 'string',
        placeholder: '<dir>',
        help: "directory with a folder of leases per network (the list's dataDir; /var/lib/cni/networks)",
      },
      ...only(NETWORK_OPTIONS, 'conf-dir', 'file', 'cni-cache-dir'),
      force: { type: 'boolean', help: 'free an address although it may be in use' },
    },
    load: () => import('./commands/ipam.ts'),
  },
  {
    name: 'trace',
    summary: 'show recent requests, or draw one: when each link ran and what it added',
    usage: '[<id>]',
    positionals: { min: 0, max: 1 },
    options: {
      'trace-dir': TRACE_DIR,
      kernel: { type: 'boolean', help: 'draw also what each link did in the kernel' },
    },
    load: () => import('./commands/trace.ts'),
  },
  {
    name: 'version',
    summary: "show the tool's version, or what each link of a network supports",
    usage: '[<network>]',
    positionals: { min: 0, max: 1 },
    options: NETWORK_OPTIONS,
    load: () => import('./commands/version.ts'),
  },
  {
    name: 'daemon',
    summary: 'keep links warm and run commands and plugin calls for others',
    usage: '',
    positionals: { min: 0, max: 0 },
    options: {
      'run-dir': {
        type: 'string',
        placeholder: '<dir>',
        help: 'directory of its socket (CATENA_RUN_DIR; /run/catena)',
      },
      replace: {
        type: 'boolean',
        help: 'take the place of a daemon that listens there already; it finishes what it has',
      },
      workers: { type: 'string', placeholder: '<n>', help: 'processes that serve links, at most (4)' },
      config: {
        type: 'string',
        placeholder: '<file>',
        help: 'JSON with limits, logs and traces, read again when it changes',
      },
      ...only(NETWORK_OPTIONS, 'timeout'),
      requests: { type: 'string', placeholder: '<n>', help: 'requests at the same time, at most (64)' },
      'node-name': {
        type: 'string',
        placeholder: '<name>',
        help: 'node of a cluster whose pods are watched (CATENA_NODE_NAME)',
      },
      'grpc-socket': {
        type: 'string',
        placeholder: '<file>',
        help: "serve coil's gRPC service on this socket, too",
      },
      log: {
        type: 'string',
        multiple: true,
        placeholder: '<place>',
        help: 'console, file:<path>, syslog, journal or none, repeatable (console)',
      },
      'log-level': {
        type: 'string',
        placeholder: '<levels>',
        help: 'error, warn, info or debug, for all and by link: info,portmap=debug (CATENA_LOG_LEVEL; info)',
      },
      'log-max-bytes': {
        type: 'string',
        placeholder: '<n>',
        help: 'size at which a log file is rotated (16777216)',
      },
      'log-max-files': { type: 'string', placeholder: '<n>', help: 'log files that are kept of each (5)' },
      'trace-dir': TRACE_DIR,
      traces: { type: 'string', placeholder: '<n>', help: 'traces that are kept, 0 for none (500)' },
      'otlp-endpoint': {
        type: 'string',
        placeholder: '<url>',
        help: 'send spans to this collector, OTLP over HTTP (OTEL_EXPORTER_OTLP_ENDPOINT; none)',
      },
    },
    load: () => import('./commands/daemon.ts'),
  },
  {
    name: 'doctor',
    summary: 'say what is wrong with this node, and which command mends it',
    usage: '',
    positionals: { min: 0, max: 0 },
    options: {
      'conf-dir': CONF_DIR,
      'bin-dir': BIN_DIR,
      'cni-cache-dir': CACHE_DIR,
      'state-dir': STATE_DIR,
      all: { type: 'boolean', help: 'show also what is as it should be' },
    },
    load: () => import('./commands/doctor.ts'),
  },
  {
    name: 'try',
    summary: 'run a list in throwaway namespaces and show what each link does',
    usage: '<conflist>',
    positionals: { min: 1, max: 1 },
    options: {
      ...LAB_OPTIONS,
      'keep-going': { type: 'boolean', help: 'probe on after something went wrong' },
    },
    load: () => import('./commands/try.ts'),
  },
  {
    name: 'compare',
    summary: 'run a list with two sets of executables in twin namespaces, and show in what they differ',
    usage: '<conflist>',
    positionals: { min: 1, max: 1 },
    options: {
      with: {
        type: 'string',
        placeholder: '<dir or executable>',
        help: 'the other executables: all that a directory has, or one',
      },
      link: {
        type: 'string',
        placeholder: '<type or index>',
        help: 'take only this link from there: its type, or its place in the list from 0',
      },
      ...LAB_OPTIONS,
      ignore: IGNORE,
      scene: SCENE,
    },
    load: () => import('./commands/compare.ts'),
  },
  {
    name: 'swap',
    summary: 'put another executable in the place of a link: examined before, verified by CHECK after',
    usage: '<network>',
    positionals: { min: 1, max: 1 },
    options: {
      link: {
        type: 'string',
        placeholder: '<type or index>',
        help: 'the link: its type, or its place in the list from 0; without --to, show what it calls now',
      },
      to: {
        type: 'string',
        placeholder: '<executable>',
        help: 'what takes its place: a file, or the directory that has one of its name',
      },
      undo: { type: 'boolean', help: 'put back what was there before the last swap' },
      'dry-run': DRY_RUN,
      yes: { type: 'boolean', help: 'do not ask; nobody is asked where there is no terminal' },
      'accept-differences': { type: 'boolean', help: 'swap although the candidate does things otherwise' },
      ignore: IGNORE,
      scene: SCENE,
      cap: CAP,
      force: { type: 'boolean', help: 'swap whatever the examinations say; undo whatever is there now' },
      keep: { type: 'boolean', help: 'do not put the old one back when CHECK fails' },
      ...only(NETWORK_OPTIONS, 'conf-dir', 'file', 'bin-dir', 'cni-cache-dir', 'state-dir', 'timeout'),
    },
    load: () => import('./commands/swap.ts'),
  },
  {
    name: 'handover',
    summary: 'make standing attachments deletable by other executables, such as the reference plugins',
    usage: '[<network>]',
    positionals: { min: 0, max: 1 },
    options: {
      to: {
        type: 'string',
        multiple: true,
        placeholder: '<dir>',
        help: 'directory of the executables that are to delete them, repeatable: the first that has a link counts',
      },
      'dry-run': DRY_RUN,
      force: { type: 'boolean', help: 'hand over although a trial fails, or cannot be made' },
      ...only(NETWORK_OPTIONS, 'bin-dir', 'cni-cache-dir', 'state-dir', 'timeout'),
    },
    load: () => import('./commands/handover.ts'),
  },
  {
    name: 'conformance',
    summary: 'examine which rules of the protocol an executable keeps, in throwaway namespaces',
    usage: '<executable>',
    positionals: { min: 1, max: 1 },
    options: {
      conf: {
        type: 'string',
        placeholder: '<file>',
        help: 'configuration of the plugin; without one, only what needs none is examined',
      },
      from: { type: 'string', placeholder: '<conflist>', help: 'take the configuration from the list' },
      cap: { type: 'string', placeholder: '<json>', help: 'capability arguments, with --from' },
      chained: { type: 'boolean', help: 'hand it a prevResult, with the interfaces that this names' },
      'prev-result': {
        type: 'string',
        placeholder: '<file>',
        help: 'what that says (a veth pair with an address)',
      },
      device: {
        type: 'string',
        placeholder: '<name>',
        help: 'make a device of that name on the host for it',
      },
      ifname: IFNAME,
      'bin-dir': {
        type: 'string',
        multiple: true,
        placeholder: '<dir>',
        help: 'directory of plugins that it delegates to, repeatable (that of the executable)',
      },
      timeout: { type: 'string', placeholder: '<seconds>', help: 'time each call may take (10)' },
    },
    load: () => import('./commands/conformance.ts'),
  },
  {
    name: 'validate',
    summary: 'find what is wrong with a list, or with a directory of them',
    usage: '<file or directory>',
    positionals: { min: 1, max: 1 },
    options: {
      'bin-dir': BIN_DIR,
      'files-only': { type: 'boolean', help: 'do not look for executables, nor ask them what they support' },
      strict: { type: 'boolean', help: 'fail on warnings too' },
    },
    load: () => import('./commands/validate.ts'),
  },
  {
    name: 'install',
    summary: 'lay the executables, and a list, where container runtimes look for them',
    usage: '[<conflist>]',
    positionals: { min: 0, max: 1 },
    options: {
      'bin-dir': INSTALL_BIN_DIR,
      'conf-dir': CONF_DIR,
      link: {
        type: 'string',
        multiple: true,
        placeholder: '<type>',
        help: 'install this link only, repeatable (all of them)',
      },
      'conf-name': {
        type: 'string',
        placeholder: '<file>',
        help: 'name of the list in its directory (10-<network>.conflist)',
      },
      'as-default': {
        type: 'boolean',
        help: 'give the list a name that sorts first, and fail if it is not taken',
      },
      force: {
        type: 'boolean',
        help: 'replace files of others; they stay beside ours, and uninstall restores them',
      },
      'dry-run': DRY_RUN,
      print: {
        type: 'string',
        placeholder: '<what>',
        help: 'print a systemd unit, a daemonset or a containerfile instead',
      },
      'with-account': {
        type: 'boolean',
        help: "give the printed daemonset an account of the cluster's API, for delegates and their status",
      },
      account: {
        type: 'string',
        placeholder: '<dir>',
        help: "a pod's account, for a kubeconfig in catena.d beside the list",
      },
      'account-on-host': {
        type: 'string',
        placeholder: '<dir>',
        help: 'the same directory as the host sees it (the same path)',
      },
      etc: ETC_DIR,
    },
    load: () => import('./commands/install.ts'),
  },
  {
    name: 'uninstall',
    summary: 'remove exactly what was installed',
    usage: '',
    positionals: { min: 0, max: 0 },
    options: {
      'bin-dir': INSTALL_BIN_DIR,
      'conf-dir': CONF_DIR,
      'hand-over': {
        type: 'boolean',
        help: 'make standing attachments deletable by what comes back first; without it they forbid it',
      },
      to: {
        type: 'string',
        multiple: true,
        placeholder: '<dir>',
        help: 'directory of executables that come next where none come back, repeatable',
      },
      force: { type: 'boolean', help: 'uninstall although attachments stand that nothing can delete then' },
      'cni-cache-dir': CACHE_DIR,
      'state-dir': STATE_DIR,
      'dry-run': DRY_RUN,
    },
    load: () => import('./commands/uninstall.ts'),
  },
  {
    name: 'schema',
    summary: 'print the JSON Schema of lists, or of the configuration of a link',
    usage: '[<type>]',
    positionals: { min: 0, max: 1 },
    options: {},
    load: () => import('./commands/schema.ts'),
  },
  {
    name: 'new',
    summary: 'write the project of a new plugin: source, test and build',
    usage: '<name>',
    positionals: { min: 1, max: 1 },
    options: {
      dir: { type: 'string', placeholder: '<dir>', help: 'directory to make or fill (./<name>)' },
    },
    load: () => import('./commands/new.ts'),
  },
];

function only(options: Command['options'], ...names: string[]): Command['options'] {
  return Object.fromEntries(Object.entries(options).filter(([name]) => names.includes(name)));
}
