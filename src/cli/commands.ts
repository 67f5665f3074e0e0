// Which commands does the tool have, and which options and arguments do they take?
import { CAPABILITY_OPTIONS } from './capability-options.ts';
import { type Command, type CommandOption, flag, UsageError, value, values } from './command.ts';
import { SHELLS } from './completion/question.ts';
import { PRINTABLE, SWITCH_FROM_MULTUS } from './install/print-options.ts';
import { DATA_FORMATS, LIST_FORMATS, outputOption } from './output/format.ts';

export const GLOBAL_OPTIONS = {
  help: flag('show usage', { short: 'h' }),
  json: flag('short for --output json'),
  output: outputOption(
    DATA_FORMATS,
    'json or yaml; errors are then JSON in the format of the CNI specification',
  ),
  color: value('<when>', 'auto, always or never (auto: on a terminal, unless NO_COLOR is set)', {
    choices: ['auto', 'always', 'never'],
  }),
} as const satisfies Readonly<Record<string, CommandOption>>;

const LIST_OUTPUT = outputOption(
  LIST_FORMATS,
  'json or yaml for programs, wide for more columns, name for names alone',
);

const CONF_DIR = value('<dir>', 'directory of network configurations (NETCONFPATH; /etc/cni/net.d)');

const BIN_DIR = values('<dir>', 'directory of plugins, repeatable (CNI_PATH; /opt/cni/bin)');

const IFNAME = value('<name>', 'interface in the container (eth0)');

const DRY_RUN = flag('show what would be done and why, without doing it');

/** The chain is only looked at: dry-run.ts. */
const DRY_CHAIN = flag('show which plugins would be called and with what, without calling them');

const CAP = value('<json>', 'capability arguments, instead of the default two ports and rates');

const IGNORE = values('<pattern>', 'a regular expression for intended differences, repeatable');

const SCENE = values('<name>', 'run only this scenario (life, twice, …), repeatable (all)');

/** Options of commands that call plugins in temporary namespaces. */
const LAB_OPTIONS: Readonly<Record<string, CommandOption>> = {
  'bin-dir': values('<dir>', 'directory of plugins, repeatable (directory of this executable)'),
  'conf-dir': CONF_DIR,
  ifname: IFNAME,
  args: value('<K=V;…>', 'arguments for the plugins'),
  cap: CAP,
};

const ETC_DIR = value('<dir>', "directory of the runtimes' own configurations (/etc)");

const INSTALL_BIN_DIR = values(
  '<dir>',
  'directory of plugins, repeatable; executables are installed in the first (/opt/cni/bin)',
);

/** Where a model of the node is read from. */
const NODE_OPTIONS: Command['options'] = {
  'conf-dir': CONF_DIR,
  'bin-dir': BIN_DIR,
  'cni-cache-dir': value('<dir>', 'directory of the result cache (CATENA_CNI_CACHE_DIR; /var/lib/cni)'),
  'state-dir': value('<dir>', 'directory of the journal of attachments (CATENA_STATE_DIR; /var/lib/catena)'),
};

const TRACE_DIR = value('<dir>', 'directory of traces (CATENA_TRACE_DIR; traces below the run directory)');

const NETWORK_OPTIONS: Readonly<Record<string, CommandOption>> = {
  'conf-dir': CONF_DIR,
  file: value('<conflist>', 'read the network from this file instead of the directory'),
  ...NODE_OPTIONS,
  timeout: values('<seconds>', 'time limit per plugin call (60); del=120 sets it for one verb, repeatable'),
};

const CHAIN_OPTIONS: Readonly<Record<string, CommandOption>> = {
  ...NETWORK_OPTIONS,
  trace: flag(
    'keep a trace of the request, for catena log --requests (CATENA_TRACE_DIR; traces below the run directory)',
  ),
};

const ATTACHMENT_OPTIONS: Readonly<Record<string, CommandOption>> = {
  ...CHAIN_OPTIONS,
  'container-id': value('<id>', "id of the container (derived from the namespace's path, as cnitool does)"),
  ifname: value('<name>', 'interface in the container (CNI_IFNAME; eth0)'),
  args: value('<K=V;…>', 'arguments for the plugins (CNI_ARGS)'),
  cap: value('<json>', 'capability arguments, {"portMappings": […]} (CAP_ARGS)'),
  ...CAPABILITY_OPTIONS,
};

/** What a daemon that is to serve gets. */
const SERVING: Command['options'] = {
  'conf-dir': CONF_DIR,
  replace: flag('replace a daemon that already listens there; it finishes its requests first'),
  'idle-exit': value('<seconds>', 'end after this time without a request (never)'),
  workers: value('<n>', 'maximum number of requests at work, each with a process (4)'),
  config: value('<file>', 'JSON with limits, logs and traces, reloaded when it changes'),
  ...only(NETWORK_OPTIONS, 'timeout'),
  'node-name': value('<name>', 'cluster node whose pods are watched (CATENA_NODE_NAME)'),
  'grpc-socket': value('<file>', "also serve coil's gRPC service on this socket"),
  metrics: value(
    '<address:port>',
    'serve GET /metrics and /healthz there, and nothing else; *:<port> is every address (none)',
  ),
  log: values('<place>', 'console, file:<path>, syslog, journal or none, repeatable (console)'),
  'log-level': value(
    '<levels>',
    'error, warn, info or debug, for all and per plugin: info,portmap=debug (CATENA_LOG_LEVEL; info)',
  ),
  'log-max-bytes': value('<n>', 'size at which a log file is rotated (16777216)'),
  'log-max-files': value('<n>', 'rotated files to keep per log (5)'),
  'trace-dir': TRACE_DIR,
  traces: value('<n>', 'traces to keep, 0 for none (500)'),
  'otlp-endpoint': value(
    '<url>',
    'send spans to this collector, OTLP over HTTP (OTEL_EXPORTER_OTLP_ENDPOINT; none)',
  ),
};

/** A command; how many arguments it may have follows from `usage` unless `positionals` says it. */
type Row = Omit<Command, 'usage' | 'positionals'> & Partial<Pick<Command, 'usage' | 'positionals'>>;

const ROWS: readonly Row[] = [
  {
    name: 'add',
    summary: 'attach a network namespace to a network and print the result',
    usage: '<network> <netns>',
    options: { ...ATTACHMENT_OPTIONS, 'dry-run': DRY_CHAIN },
    load: () => import('./commands/add.ts'),
  },
  {
    name: 'check',
    summary: 'ask every plugin whether its part of an attachment is intact',
    usage: '<network> <netns>',
    options: ATTACHMENT_OPTIONS,
    load: () => import('./commands/check.ts'),
  },
  {
    name: 'del',
    summary: 'detach a network namespace from a network',
    usage: '<network> <netns>',
    options: {
      ...ATTACHMENT_OPTIONS,
      forget: flag(
        'forget what third-party plugins made whose DEL fails: all of ours is deleted, the rest is listed',
      ),
      'dry-run': DRY_CHAIN,
    },
    load: () => import('./commands/del.ts'),
  },
  {
    name: 'set',
    summary: 'change rates, ports, policy and sysctls of an attachment while its container runs',
    usage: '<container> <network or interface>',
    options: {
      ...only(CHAIN_OPTIONS, 'bin-dir', 'cni-cache-dir', 'state-dir', 'timeout', 'trace'),
      cap: value('<json>', 'capability arguments to replace, {"portMappings": […]}; null takes one away'),
      ...only(CAPABILITY_OPTIONS, 'port', 'rate'),
      conf: value(
        '<json>',
        'options to replace, by plugin type, {"<type>": {"<option>": …}}; null takes one away',
      ),
      'dry-run': flag(
        'have the plugins say whether they can make the change, and show which would be called',
      ),
    },
    load: () => import('./commands/set.ts'),
  },
  {
    name: 'attach',
    summary: 'attach a running container to one more network and print the result',
    usage: '<container> <network>',
    options: {
      ...CHAIN_OPTIONS,
      ifname: value('<name>', 'interface in the container (the next free of net1, net2, …)'),
      args: value('<K=V;…>', "arguments for the plugins, in addition to the pod's names"),
      cap: value('<json>', 'capability arguments, {"portMappings": […]}'),
      ...CAPABILITY_OPTIONS,
      'default-route': flag('allow the network to add a default route beside the one that the container has'),
      'dry-run': DRY_CHAIN,
    },
    load: () => import('./commands/attach.ts'),
  },
  {
    name: 'detach',
    summary: 'detach a container from one of its networks',
    usage: '<container> <network or interface>',
    options: {
      ...only(CHAIN_OPTIONS, 'bin-dir', 'cni-cache-dir', 'state-dir', 'timeout', 'trace'),
      force: flag("detach also the container's first interface, and what another program attached"),
      'dry-run': DRY_CHAIN,
    },
    load: () => import('./commands/detach.ts'),
  },
  {
    name: 'gc',
    summary:
      'delete the attachments of a network that are no longer valid, or all that outlived their namespace',
    usage: '<network> | --gone [<network>]',
    positionals: { min: 0, max: 1 },
    options: {
      ...CHAIN_OPTIONS,
      valid: values('<id>/<ifname>', 'an attachment to keep, repeatable'),
      all: flag('keep none'),
      foreign: flag('also delete attachments without a record here, even if they may be in use'),
      gone: flag('delete what outlived its namespace or an earlier boot, of any network and runtime', {
        not: ['valid', 'all', 'foreign', 'file'],
      }),
      grace: value(
        '<seconds>',
        'how long a namespace must be gone, since a runtime may be about to call DEL (10)',
        { with: 'gone' },
      ),
      'dry-run': DRY_RUN,
    },
    load: () => import('./commands/gc.ts'),
  },
  {
    name: 'repair',
    summary: 'delete what a crash left behind, and restore missing parts of attachments',
    usage: '[<network>]',
    options: {
      ...only(NETWORK_OPTIONS, 'conf-dir', 'bin-dir', 'cni-cache-dir', 'state-dir', 'timeout'),
      foreign: flag('run ADD again for third-party chained plugins whose CHECK fails'),
      'dry-run': flag('show what is wrong, without repairing it'),
    },
    load: () => import('./commands/repair.ts'),
  },
  {
    name: 'status',
    summary: 'ask every plugin whether it could attach a container now',
    usage: '<network>',
    positionals: { min: 1, max: 2 },
    options: CHAIN_OPTIONS,
    load: () => import('./commands/status.ts'),
  },
  {
    name: 'ls',
    summary: 'show or draw what is attached: containers, networks, addresses, ports and ages',
    options: {
      network: value('<name>', 'only attachments to this network'),
      filter: values(
        '<key=value>',
        'only those that match, repeatable: name, id, network, address, port, device, state, health or runner',
      ),
      all: flag('also show loopback interfaces, and attachments to delegate runners'),
      check: flag('run CHECK of every attachment, and fail if one is broken'),
      unsettled: flag('show what an interrupted or failed operation left to be undone instead', {
        not: ['filter', 'all', 'check', 'watch'],
      }),
      watch: flag('look again every two seconds'),
      output: outputOption(
        [...LIST_FORMATS, 'tree', 'svg', 'mermaid', 'dot'],
        'json or yaml for programs, wide for more columns, name for names alone; tree, svg, mermaid or dot for a drawing',
      ),
      ...NODE_OPTIONS,
    },
    load: () => import('./commands/ls.ts'),
  },
  {
    name: 'who',
    summary:
      'show whose an address, MAC, port, device, rule handle or container id is, since when and on what evidence',
    usage: '<address, mac, port, device, handle, name or id>',
    positionals: { min: 1, max: 2 },
    options: { ...NODE_OPTIONS, output: LIST_OUTPUT },
    load: () => import('./commands/who.ts'),
  },
  {
    name: 'why-not',
    summary:
      'follow a packet and its reply, and name the first hop that stops it; exits with 0 if both arrive, 1 if stopped, 3 if unknown',
    usage: '[<outside, node, address or container>] <:port, container:port or address:port, with /udp>',
    options: {
      ipv6: flag('follow IPv6 where a name has addresses of both families'),
      ...NODE_OPTIONS,
    },
    load: () => import('./commands/why-not.ts'),
  },
  {
    name: 'log',
    summary:
      'show what changed on this node, by whom and when; or one request: when each plugin ran and what it added',
    usage: '[<id>]',
    options: {
      since: value('<time>', 'such as 15min, 2h, 3d, today, yesterday, 2026-01-31 or 2026-01-31T08:00Z (1d)'),
      network: value('<name>', 'only this network'),
      container: value('<id or pod>', 'only containers whose id begins so, or pods of that name'),
      follow: flag('continue with what happens from now on; with --json, one object per line'),
      requests: flag('list the requests that were traced, with the ids', { not: ['follow'] }),
      kernel: flag('with an id: also show what each plugin did in the kernel'),
      'trace-dir': TRACE_DIR,
      ...NODE_OPTIONS,
      output: LIST_OUTPUT,
    },
    load: () => import('./commands/log.ts'),
  },
  {
    name: 'networks',
    summary: 'show every file of the configuration directory, and which ones container runtimes use',
    options: {
      why: flag('explain for each file and runtime why it is used or not'),
      versions: value(
        '<conflist or network>',
        'show which versions each plugin of this network supports instead; fails if one lacks that of the list',
        { not: ['why', 'files-only', 'max-conf-num', 'default-network', 'etc'] },
      ),
      ...only(NETWORK_OPTIONS, 'conf-dir', 'bin-dir', 'timeout'),
      'files-only': flag('do not ask the plugins for their versions'),
      output: LIST_OUTPUT,
      'max-conf-num': value(
        '<number>',
        "containerd's max_conf_num: how many files it reads, 0 for all (as configured, else 1)",
      ),
      'default-network': value(
        '<name>',
        "CRI-O's cni_default_network (as configured, else none: the first file by name)",
      ),
      etc: ETC_DIR,
    },
    load: () => import('./commands/networks.ts'),
  },
  {
    name: 'ipam',
    summary: 'list the leases of this node, explain one, or free one; or list the pools of the cluster',
    usage: '<ls, why, free or pools> [<network>] [<address>]',
    options: {
      'data-dir': value(
        '<dir>',
        "directory with a folder of leases per network (the list's dataDir; /var/lib/cni/networks)",
      ),
      ...only(NETWORK_OPTIONS, 'conf-dir', 'file', 'cni-cache-dir'),
      force: flag('free an address even if it may be in use'),
      'dry-run': flag('with free: show whose lease would be freed, without freeing it'),
      output: LIST_OUTPUT,
    },
    load: () => import('./commands/ipam.ts'),
  },
  {
    name: 'daemon',
    summary: 'keep plugins loaded and serve commands and plugin calls',
    options: {
      'run-dir': value('<dir>', 'directory of its socket (CATENA_RUN_DIR; /run/catena)'),
      stop: flag('end the daemon that runs there, once its requests are finished', {
        not: Object.keys(SERVING),
      }),
      status: flag('describe the daemon that runs there: exit code 3 if none runs', {
        not: [...Object.keys(SERVING), 'stop'],
      }),
      ping: flag('ask whether it answers: exit code 0, 3 (no daemon), 4 (another build) or 5 (no answer)', {
        not: [...Object.keys(SERVING), 'stop', 'status'],
      }),
      deadline: value('<seconds>', 'how long to wait for the answer (2)', { with: 'ping' }),
      ...SERVING,
    },
    load: call =>
      ['ping', 'stop', 'status'].some(one => call.on(one))
        ? import('./daemon/control.ts')
        : import('./commands/daemon.ts'),
  },
  {
    name: 'doctor',
    summary:
      'diagnose this node and suggest fixes, send packets for its containers, or write an archive for a bug report',
    usage: '[--traffic [<container>]]',
    options: {
      ...NODE_OPTIONS,
      all: flag('also show checks that found nothing'),
      traffic: flag(
        'instead send packets for what is attached, or for one container: to gateways, neighbours, outside, DNS servers and published ports',
      ),
      to: value('<address>', 'a host outside, with a TCP port if there is one (the next hop of the uplink)', {
        with: 'traffic',
      }),
      rates: flag('also fill the links that have a limit, for a second each', { with: 'traffic' }),
      bundle: value(
        '<file>',
        'write an archive (.tar.gz), which must not exist, for a bug report, with secrets masked',
        { not: ['traffic'] },
      ),
      anonymous: flag(
        'replace addresses and the names of pods, containers and the host, each by the same word everywhere',
        { with: 'bundle' },
      ),
      config: value('<file>', "the daemon's settings, to be included", { with: 'bundle' }),
      'trace-dir': TRACE_DIR,
    },
    load: call => {
      if (call.on('traffic')) return import('./traffic.ts');
      if (call.positionals.length)
        throw new UsageError(
          `Cannot diagnose "${call.positionals[0]}" alone: a container is for --traffic; see catena help doctor`,
        );
      return call.text('bundle') === undefined ? import('./commands/doctor.ts') : import('./bundle/write.ts');
    },
  },
  {
    name: 'ui',
    summary:
      'serve a page about this node to one browser on it: what is attached, what is broken, what happened',
    options: {
      port: value('<number>', 'port of 127.0.0.1 to listen on (a free one)'),
      'idle-exit': value('<seconds>', 'end after this time without a request (1800)'),
      'trace-dir': TRACE_DIR,
      ...NODE_OPTIONS,
    },
    load: () => import('./commands/ui.ts'),
  },
  {
    name: 'try',
    summary: 'run a list in temporary namespaces and show what each plugin does',
    usage: '<conflist or network>',
    options: {
      ...LAB_OPTIONS,
      ...CAPABILITY_OPTIONS,
      device: values(
        '<name>',
        'device that the fake host has, with a cable to the outside, repeatable: a master or an uplink',
      ),
      'keep-going': flag('continue probing after a failure'),
    },
    load: () => import('./commands/try.ts'),
  },
  {
    name: 'compare',
    summary: 'run a list with two sets of executables in separate namespaces, and show the differences',
    usage: '<conflist or network>',
    options: {
      with: value('<dir or executable>', 'the other executables: a directory of them, or one file'),
      plugin: value(
        '<type or index>',
        'use only this plugin from there: its type, or its index in the list from 0',
      ),
      ...LAB_OPTIONS,
      all: flag('show every difference, those by design as well'),
      ignore: IGNORE,
      scene: SCENE,
    },
    load: () => import('./commands/compare.ts'),
  },
  {
    name: 'swap',
    summary: 'replace the executable of a plugin: examined before, verified by CHECK after',
    usage: '<network>',
    options: {
      plugin: value(
        '<type or index>',
        'the plugin: its type, or its index in the list from 0; without --to, show its current executable',
      ),
      to: value('<executable>', 'the new executable: a file, or a directory with a file of that name'),
      undo: flag('restore the executable from before the last swap', { not: ['to'] }),
      'dry-run': DRY_RUN,
      yes: flag('assume yes (implied without a terminal)'),
      'accept-differences': flag('swap even if the candidate behaves differently'),
      ignore: IGNORE,
      scene: SCENE,
      cap: CAP,
      force: flag('swap even if checks fail; undo even if the executable has changed since'),
      keep: flag('do not restore the old executable when CHECK fails'),
      ...only(NETWORK_OPTIONS, 'conf-dir', 'file', 'bin-dir', 'cni-cache-dir', 'state-dir', 'timeout'),
    },
    load: () => import('./commands/swap.ts'),
  },
  {
    name: 'handover',
    summary: 'make existing attachments deletable by other executables, such as the reference plugins',
    usage: '[<network>]',
    options: {
      to: values(
        '<dir>',
        'directory of the executables that will delete them, repeatable: the first that has a plugin is used (that of the reference)',
      ),
      'dry-run': DRY_RUN,
      force: flag('hand over without trials, and the others if one cannot be; otherwise it is all or none'),
      ...only(NETWORK_OPTIONS, 'bin-dir', 'cni-cache-dir', 'state-dir', 'timeout'),
    },
    load: () => import('./commands/handover.ts'),
  },
  {
    name: 'conformance',
    summary: 'test whether an executable conforms to the CNI specification, in temporary namespaces',
    usage: '<executable>',
    options: {
      conf: value('<file>', 'configuration of the plugin; without it, only rules that need none are tested'),
      from: value('<conflist>', 'take the configuration from this list', { not: ['conf'] }),
      cap: value('<json>', 'capability arguments', { with: 'from' }),
      chained: flag('pass a prevResult, and create the interfaces that it names'),
      'prev-result': value('<file>', 'prevResult to pass (a veth pair with one address)'),
      device: value('<name>', 'create a device of that name on the host for it'),
      'on-bridge': value(
        '<name>',
        'create a bridge of that name, with an interface of each container on it, as for an IPAM plugin',
      ),
      beside: value(
        '<executable>',
        'run this on the host during the tests, such as a DHCP server; it is ready once it writes to standard error',
      ),
      ifname: IFNAME,
      'bin-dir': values(
        '<dir>',
        'directory of plugins that it delegates to, repeatable (directory of the executable)',
      ),
      timeout: value('<seconds>', 'time limit per call (10)'),
    },
    load: () => import('./commands/conformance.ts'),
  },
  {
    name: 'validate',
    summary: 'report errors in lists, or in directories of lists; or explain a list, or print a JSON Schema',
    usage: '<file, directory or network>...',
    positionals: { min: 0, max: Number.POSITIVE_INFINITY },
    options: {
      explain: flag('explain every line of the list instead', { not: ['schema', 'files-only', 'strict'] }),
      schema: value(
        '<type or kind>',
        "print the JSON Schema of a plugin's configuration, of what a command prints, or of a whole list (conflist)",
        { not: ['files-only', 'strict'] },
      ),
      'conf-dir': CONF_DIR,
      'bin-dir': BIN_DIR,
      'files-only': flag('do not look for executables or ask for their versions'),
      strict: flag('fail on warnings too'),
    },
    load: call =>
      call.on('explain') && call.text('schema') === undefined
        ? import('./validate/explain.ts')
        : import('./commands/validate.ts'),
  },
  {
    name: 'install',
    summary: 'install the executables, and a list, where container runtimes look for them',
    usage: '[<conflist>]',
    options: {
      'bin-dir': INSTALL_BIN_DIR,
      'conf-dir': CONF_DIR,
      plugin: values('<type>', 'install only this plugin, repeatable (all of them)'),
      'conf-name': value('<file>', 'name of the list in its directory (10-<network>.conflist)'),
      'as-default': flag('give the list a name that sorts first, and fail if no runtime uses it'),
      force: flag('replace files of other packages; they are kept, and uninstall restores them'),
      'dry-run': DRY_RUN,
      print: value(
        '<what>',
        'print a systemd unit, a daemonset, a containerfile, the kinds of cluster-wide addresses (crds), alerts for Prometheus, a board of Grafana, or a switch from multus, step by step, instead of installing',
        { choices: [...PRINTABLE, SWITCH_FROM_MULTUS] },
      ),
      kubeconfig: value(
        '<file>',
        "of the cluster whose objects a switch from multus is about (multus's own)",
        { with: 'print' },
      ),
      'with-account': flag('give the daemonset a service account, for delegates and network status', {
        with: 'print',
      }),
      'with-metrics': flag("have the daemonset serve metrics at the node's address, port 9464", {
        with: 'print',
      }),
      'with-definitions': flag(
        'have the daemonset bring the kind NetworkAttachmentDefinition, which multus brings as well',
        { with: 'print' },
      ),
      image: value('<name>', 'image of the daemonset (localhost/catena of this version)', { with: 'print' }),
      kubernetes: value('<version>', 'for clusters of this version and later (1.30)', { with: 'print' }),
      account: value('<dir>', "a pod's service account, for a kubeconfig in catena.d next to the list"),
      'account-on-host': value('<dir>', 'path of that directory on the host (the same path)', {
        with: 'account',
      }),
      daemon: value(
        '<starter>',
        'what starts the daemon: systemd, on-demand (the first call) or none (as before)',
        { choices: ['systemd', 'on-demand', 'none'] },
      ),
      'keep-daemon': flag(
        'let a daemon of the replaced executables run on; it declines calls of the new ones',
      ),
      'share-dir': value(
        '<dir>',
        'also install shell completion and the manual below this directory, such as /usr/local/share',
      ),
      etc: ETC_DIR,
    },
    load: call =>
      call.text('print') === SWITCH_FROM_MULTUS
        ? import('./install/switch-from-multus.ts')
        : import('./commands/install.ts'),
  },
  {
    name: 'uninstall',
    summary: 'remove exactly what was installed',
    options: {
      'bin-dir': INSTALL_BIN_DIR,
      'conf-dir': CONF_DIR,
      'hand-over': flag(
        'make existing attachments deletable by the restored executables first; without it they block uninstall',
      ),
      to: values('<dir>', 'directory of executables to use where none is restored, repeatable'),
      force: flag('uninstall even if attachments remain that nothing can delete afterwards'),
      purge: flag(
        'remove records, tables, idle bridges, index files and the daemon as well: everything of ours',
      ),
      ...only(NODE_OPTIONS, 'cni-cache-dir', 'state-dir'),
      'dry-run': DRY_RUN,
    },
    load: () => import('./commands/uninstall.ts'),
  },
  {
    name: 'init',
    summary:
      'write a list for a new network, by four questions on a terminal or by options; or the project of a new plugin',
    usage: '[<name>]',
    options: {
      kind: value('<kind>', 'bridge, internal (a bridge without a way out), ptp, macvlan or ipvlan'),
      subnet: values(
        '<subnet>',
        'such as 10.1.0.0/24, repeatable; auto (free ones, auto4 and auto6 of one family), dhcp or none',
      ),
      device: value('<name>', "the node's device below a macvlan or ipvlan (that of the default route)"),
      ports: flag('publish the ports that containers ask for'),
      rates: flag('limit the rates that containers ask for'),
      file: value('<file>', 'file to write (<name>.conflist)'),
      plugin: flag('create the project of a plugin of that name instead: source, test and build', {
        not: ['kind', 'subnet', 'device', 'ports', 'rates', 'file'],
      }),
      dir: value('<dir>', 'directory to create or fill (./<name>)', { with: 'plugin' }),
      force: flag('replace the file, or use a name that another file has'),
      'dry-run': flag('show what would be written where, without writing it'),
      ...NODE_OPTIONS,
    },
    load: call => (call.on('plugin') ? import('./init/project.ts') : import('./commands/init.ts')),
  },
  {
    name: 'help',
    summary: 'show usage, that of a command, or what an error code means',
    usage: '[<command or error code>]',
    options: {
      man: flag('print the page of the manual instead, for man -l -'),
      completion: value('<shell>', 'print the completion of command lines for bash, zsh or fish', {
        choices: SHELLS,
      }),
    },
    load: () => import('./commands/help.ts'),
  },
];

/** Every command, in the order of the usage text. */
export const COMMANDS: readonly Command[] = ROWS.map(({ usage = '', ...row }) => {
  const count = (kind: RegExp) => usage.match(kind)?.length ?? 0;
  const max = count(/<[^>]*>/g);
  return { usage, positionals: { min: max - count(/\[<[^>]*>\]/g), max }, ...row };
});

function only(options: Command['options'], ...names: string[]): Command['options'] {
  return Object.fromEntries(Object.entries(options).filter(([name]) => names.includes(name)));
}
