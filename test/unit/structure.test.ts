// Does every file keep to the rules that keep the tree readable: who imports whom, and what a file looks like?

import { describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { PLUGIN_NAMES, RUNNER_NAME } from '../../plugins/registry.ts';
import { expectGenerated, table } from '../helpers/generated.ts';
import { listFiles, parseSource, ROOT, readSources, type SourceFile } from '../helpers/source-tree.ts';
import { NAMED, ringOf, testFiles } from '../rings.ts';

const product = readSources('src', 'plugins');
const tests = readSources('test');

// A folder may import only itself and what its row names; everyone may import src/log.ts and src/wait.ts. A folder inside one that has a row
// of its own is a folder apart: the name of the one does not stand for the other. src/README.md shows this table.
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  'src/net': [],
  'src/sys': [],
  'src/cni': ['src/net'],
  'src/files': ['src/cni'],
  'src/netlink': ['src/net', 'src/sys'],
  'src/attachments': ['src/files', 'src/cni', 'src/sys/netns-identity'],
  'src/chain': [
    'src/attachments',
    'src/files',
    'src/cni',
    'src/net',
    'src/sys/netns-identity',
    'src/sys/pipes',
  ],
  // A delegate is found, and ended, as any plugin is.
  'src/plugin': [
    ...['src/cni', 'src/net', 'src/netlink', 'src/sys', 'src/files/process-stat', 'src/files/read-file'],
    // What distinguishes one ADD of an attachment from the next.
    ...['src/attachments/generation', 'src/attachments/snapshot'],
    ...['src/chain/config/find-plugin', 'src/chain/run/exec-plugin', 'src/chain/run/segment'],
  ],
  // The runner's side knows how plugins start, the process's side how they are served.
  'src/worker': [
    'src/plugin',
    'src/chain',
    'src/files/process-stat',
    'src/netlink',
    'src/cni',
    'src/sys/helper-threads',
    'src/sys/process',
  ],
  'src/attach': [
    ...['src/plugin', 'src/netlink', 'src/cni', 'src/net', 'src/ipam/holders'],
    // The names of tunnels, whose MTU pods have to fit.
    'src/between/names',
    ...['src/sys/netns', 'src/sys/sysctl', 'src/sys/packet-socket', 'src/sys/errno'],
  ],
  'src/ipam': [
    ...['src/netlink', 'src/files', 'src/cni', 'src/net'],
    ...['src/sys/errno', 'src/sys/flock', 'src/sys/netns', 'src/sys/netns-identity', 'src/sys/xattr'],
  ],
  // The engine of a plugin, apart from it: the simulator of test/ runs it as well.
  'src/pools': [
    ...['src/ipam', 'src/files', 'src/cni', 'src/net', 'src/sys/flock'],
    'src/delegate/api-server',
  ],
  'src/node/upkeep': [
    ...['src/files', 'src/cni', 'src/attachments/generation'],
    ...['src/sys/flock', 'src/sys/netns-identity'],
  ],
  // It looks at everything, as the doctor does, and repairs by the runner's means.
  'src/watch': [
    'src/cli/answers',
    ...['src/chain', 'src/attachments', 'src/netlink', 'src/cni', 'src/net'],
    ...['src/files/put-file', 'src/files/read-file', 'src/sys/flock', 'src/sys/netns-identity'],
    // The networks of a pod.
    'src/delegate/record',
  ],
  // The routes of a daemon's node.
  'src/between': [
    ...['src/netlink', 'src/cni', 'src/net', 'src/files', 'src/sys/errno', 'src/sys/flock'],
    // Nodes of a cluster.
    ...['src/delegate/api-server', 'src/delegate/cluster', 'src/delegate/object-watch'],
    // The blocks that they claimed.
    ...['src/pools/held', 'src/pools/find-pool'],
  ],
  // Chains and plugins on fake hosts; those of an author are served as ours are.
  'src/lab': [
    ...['src/cli/answers', 'src/chain', 'src/cni', 'src/net', 'src/netlink', 'src/sys', 'src/plugin'],
    ...['src/node/handover/hand-over', 'src/files/process-stat', 'src/files/read-file'],
  ],
  // How plugins describe their options; the build of another author's plugin imports it.
  'src/plugin/schema': ['src/cni'],
  'src/cli/foreign': ['src/plugin/schema/render', 'src/files', 'src/cni'],
  // The delegate runner; what it does to the kernel is handed to it.
  'src/delegate': [
    ...['src/chain', 'src/attachments', 'src/cni', 'src/net'],
    // What it asks the kubelet, and what other programs read.
    ...['src/daemon/grpc/schema', 'src/files', 'src/sys/netns-identity'],
  ],
  'src/daemon': [
    'src/sys/few-connections',
    // What it prints over HTTP.
    'src/cli/answers',
    ...['src/worker/client', 'src/worker/process', 'src/sys/process', 'src/chain', 'src/cni', 'src/net'],
    'src/observe',
    // Plugins that it calls again.
    'src/node/upkeep',
    // What an operator decides about the watch.
    ...['src/watch/settings'],
    // And about the routes to other nodes.
    'src/between/plan',
    // One daemon on a socket, and its notes of what has begun.
    ...['src/files', 'src/sys/flock'],
    // A socket that a service manager keeps.
    'src/sys/service-manager',
  ],
  // What a plugin added to a result, and how times are written, is the same in every report.
  'src/observe': [
    'src/cli/answers',
    ...['src/chain', 'src/files', 'src/cni', 'src/ipam/range-use'],
    ...['src/sys/flock', 'src/sys/service-manager', 'src/lab/diff', 'src/lab/words'],
  ],
  // It looks at everything and changes nothing.
  'src/node/doctor': [
    'src/cli/answers',
    // What the daemon keeps between nodes.
    'src/between',
    'src/chain',
    'src/node/garbage/find-traced',
    'src/cli/runtimes/libcni',
    'src/attachments',
    'src/ipam',
    'src/netlink',
    ...['src/files/read-file'],
    'src/sys/flock',
    // How a client asks the daemon.
    ...['src/daemon/who-listens', 'src/daemon/protocol'],
    // What the daemon's watch knows of attachments, and what it advises.
    ...['src/watch/collect-gone', 'src/watch/examine'],
    // The attachments with their ports and addresses.
    'src/node',
    'src/cni',
    'src/net',
  ],
  // It looks at everything. What others' executables cannot delete, and what outlasts every attachment, it changes.
  'src/node': [
    'src/cli/answers',
    ...[
      'src/chain',
      'src/attachments',
      'src/ipam',
      'src/delegate/record',
      'src/netlink',
      'src/files/process-stat',
    ],
    ...['src/files/read-file', 'src/cni', 'src/net'],
    ...['src/sys/flock', 'src/sys/netns', 'src/sys/netns-identity'],
    // How rates and times are written.
    'src/lab/words',
    // Which attachments stand, and whether they are as their ADD left them.
    ...['src/watch/attachments', 'src/watch/examine'],
  ],
  // The shapes of what commands print. Those who make it import their types.
  'src/cli/answers': ['src/node/model', 'src/cni/json'],
  // It follows packets, and changes nothing.
  'src/node/packet': [
    'src/cli/answers',
    // Pods of other nodes.
    ...['src/between/names', 'src/between/note'],
    ...['src/node', 'src/node/doctor/filter', 'src/netlink', 'src/net'],
    ...['src/sys/netns', 'src/sys/sysctl', 'src/files/read-file'],
    // What `catena try` sends is sent for real containers.
    ...['src/lab', 'src/chain/config', 'src/cni'],
  ],
  // It asks commands, and knows what they print.
  'src/ui': [
    'src/sys/few-connections',
    'src/cni/attachment',
    ...['src/cli/answers', 'src/node/graph', 'src/node/model', 'src/node/words'],
    ...['src/lab/words', 'src/lab/diff', 'src/cni/result', 'src/net'],
  ],
  // Networks of running containers.
  'src/cli/running': [
    ...['src/node', 'src/chain', 'src/attachments', 'src/files/read-file', 'src/cni'],
    ...['src/sys/netns-identity', 'src/sys/flock'],
  ],
  'src/node/garbage': [
    ...['src/chain', 'src/ipam', 'src/netlink', 'src/files', 'src/cni', 'src/net'],
    ...['src/attachments/generation', 'src/sys/netns', 'src/plugin/netns-owner'],
  ],
  'src/cli': [
    'src/cli/answers',
    'src/between',
    'src/node/garbage',
    'src/node',
    'src/node/packet',
    'src/ui',
    'src/cli/running',
    'src/node/doctor',
    ...[
      'src/ipam',
      'src/worker/client',
      'src/worker/process',
      'src/delegate',
      'src/sys/process',
      'src/daemon',
      'src/sys/service-manager',
      'src/observe',
      'src/watch',
    ],
    ...['src/lab', 'src/cli/foreign', 'src/netlink', 'src/sys/netns', 'src/sys/flock', 'src/sys/sysctl'],
    ...['src/chain', 'src/attachments', 'src/files', 'src/cni', 'src/net'],
  ],
  'plugins/*': [
    ...['src/plugin', 'src/attach', 'src/ipam', 'src/netlink', 'src/files', 'src/cni', 'src/net'],
    ...['src/sys/netns', 'src/sys/netns-identity', 'src/sys/sysctl', 'src/sys/errno', 'src/sys/tun'],
    // What a plugin wants to be called again for, and how it talks to the neighbours of an interface.
    ...['src/node/upkeep', 'src/sys/packet-socket', 'src/sys/inet-socket'],
    // Addresses of a whole cluster.
    ...['src/pools', 'src/delegate/api-server'],
  ],
  // Not a plugin of a chain: it runs them.
  'plugins/catena': [
    ...[
      'src/delegate',
      // A machine that moves to the container.
      'src/attach/quiet',
      'src/attach/conflict',
      'src/node/garbage',
      'src/chain',
      'src/worker',
      'src/plugin',
      'src/observe/secrets',
      'src/netlink',
      'src/cni',
      'src/net',
      'src/observe/watcher',
      'src/observe/log-backups',
      'src/files/read-file',
      'src/sys/netns',
    ],
  ],
  // The library: protocol and runner, no kernel.
  'src/index': ['src/chain', 'src/attachments', 'src/cni'],
  'src/log': [],
  'src/wait': [],
  // A row of the registry loads a plugin; every start loads the registry itself.
  'plugins/registry': ['src/cni', 'src/plugin/define', 'plugins'],
  'plugins/release': ['plugins/registry'],
  // How executables, packages and releases are made from all of it.
  'plugins/build': [
    ...[
      'plugins',
      'src/cli/answers',
      'src/plugin/schema',
      'src/sys/flock',
      'src/cli/foreign',
      'src/node/model',
      'src/cni',
      'src/files',
      'package-lock.json',
    ],
    // What the front knows of the rest.
    ...['src/daemon/protocol', 'src/daemon/wire', 'src/worker/protocol'],
    ...[
      'src/plugin/stdio',
      'src/plugin/delete-devices',
      'src/plugin/run',
      'src/plugin/serve',
      'src/sys/fault',
    ],
    // The page of `catena ui`.
    'src/ui/bundle',
  ],
  // The one place that sees both worlds.
  'plugins/main': ['src', 'plugins'],
};

/** Where processes start; each names the program and its arguments one by one. */
const MAY_START_PROCESSES = [
  ...[
    'src/chain/run/exec-plugin',
    'src/plugin/delete-devices',
    'src/worker/process',
    'src/netlink/iptables/program',
    'plugins/tap/plugin',
  ],
  // A daemon that a call or its predecessor starts, the service manager, and runtimes that are asked for their version.
  ...['src/daemon/on-demand', 'src/cli/install/units', 'src/cli/runtimes/libcni'],
  // For people: laboratories, tests of authors, building and packing.
  ...['src/lab/reexec', 'src/lab/play'],
  ...['package', 'build-library', 'targets', 'front'].map(name => `plugins/build/${name}`),
];

const FOR_EVERYONE = ['src/log', 'src/wait', 'package.json'];

// Heavy or platform-bound dependencies have one door.
const DOORS: Readonly<Record<string, readonly string[]>> = {
  'bun:ffi': ['src/sys'],
  execa: ['src/chain/run/exec-plugin'],
  winston: ['src/log'],
  'dbus-native': ['plugins/firewall/kernel/others'],
  yaml: ['src/delegate/find-network', 'src/cli/output/format'],
  // Only the page, which is bundled, needs it.
  preact: ['src/ui/page'],
  // Only the daemon loads these.
  'prom-client': ['src/observe/metrics'],
  '@grpc/grpc-js': ['src/daemon/grpc'],
  protobufjs: ['src/daemon/grpc'],
  '@kubernetes/client-node': ['src/delegate/api-server'],
  'fs-extra': ['src/chain', 'src/daemon', 'src/cli', 'src/lab'],
};

// Who asks the kernel without src/netlink/tables.ts, and why that is no view of a node.
const DUMPS_FOR_ITSELF: Readonly<Record<string, string>> = {
  plugins: 'a step of the ADD, CHECK or DEL of one attachment, in its own namespaces',
  'src/attach': 'the same, for several plugins',
  'src/plugin/netns-owner': 'the same: whose the interface in the namespace of a call is',
  'src/ipam/lease-use': 'a plugin that finds no free address: whose far ends pairs are',
  'src/ipam/holders': 'every namespace of a host, for who has an address: a socket for each',
  'src/between/apply':
    'what one tunnel device has, before that is changed, and a transaction over one table, which is read again',
  'src/lab/compare/play': 'damages one device of a throwaway namespace',
  'src/lab/conformance/attachments': 'looks at one device of a throwaway namespace',
  'src/lab/probes': 'waits for what it has begun in a throwaway namespace',
};

const MAY_LOAD_LAZILY = [
  ...[
    'plugins/main',
    'plugins/registry',
    'src/cli/commands',
    // What only a shell asks for, and help.
    'src/cli/main',
    'src/log',
    'src/chain/run/segment',
    // Only an attachment whose change was interrupted needs it.
    'src/chain/records/recover',
    'src/chain/run/run',
    'src/delegate/find-network',
    // Few pods run a virtual machine.
    'src/delegate/add',
    // Doctor examines attachments, and only the daemon's watch puts back what is missing.
    'src/watch/examine',
  ],
  // Zod is only loaded for a value that is not certainly valid.
  'plugins/build/quick-zod/zod-mini',
  // The host's access to its containers is asked for by few networks.
  'plugins/macvlan/plugin',
  // A node has addresses left for most pods, and asks the cluster for none.
  // Of the tools, one command does.
  ...['plugins/cluster/plugin', 'plugins/cluster/claimant', 'plugins/cluster/about'],
  // The client of the cluster, for verbs that ask it.
  ...['plugins/whereabouts/plugin', 'plugins/whereabouts/books'],
  // What keeps a container quiet asks nf_tables.
  'src/attach/conflict',
  // Few networks ask dhcp for IPv6.
  'plugins/dhcp/plugin',
  // D-Bus costs nothing without firewalld.
  'plugins/firewall/kernel/others',
  // Who moves default routes among several networks.
  ...['plugins/catena/runner', 'src/observe/log-backups'],
  'src/delegate/kubernetes',
  // gRPC, for a pod that has devices.
  'src/delegate/devices',
  // Devices are deleted by few plugins, and by those on DEL only.
  'src/plugin/call',
  // Few bridges have an uplink, on which addresses are probed for.
  'plugins/bridge/plugin',
  // What GC goes by is of no use to other verbs.
  'src/plugin/serve',
  // The journal and the start of a plugin ask for it, and work under Node as well, which has no bun:ffi.
  'src/sys/libc-names',
  // Asks the node, which only records of an earlier boot need. Only who asked for a trace pays for keeping it.
  'src/cli/target',
  // semver, for lists that offer several versions.
  'src/chain/config/conflist',
  // A lab is made by commands that run again in namespaces of their own, and the others that take long have none.
  'src/cli/terminal/progress',
  // Few nodes keep routes to others.
  'src/node/doctor/node-view',
  // YAML, for who asks for it.
  'src/cli/output/format',
  // Nor for gRPC or a cluster, but who asked for them.
  'src/cli/commands/daemon',
  // Nor for a plan of the calls, but who asks for --dry-run, nor for a plugin whose DEL never succeeds, but who gives it up.
  ...['add', 'attach', 'set', 'detach', 'del'].map(name => `src/cli/commands/${name}`),
  // Nor for a cluster, but whose configuration names one.
  'src/cli/daemon/background',
];

/** Where a word that is also a plugin's name means something else, file by file. */
const SAME_WORD: Readonly<Record<string, readonly string[]>> = {
  // A kind of device in the kernel.
  bridge: [
    ...[
      ...['src/node/doctor/filter/walk', 'src/node/devices'],
      ...['draw', 'layout'].map(name => `src/node/graph/${name}`),
      'src/ui/page/overview',
    ],
    ...['bridge-vlan', 'link'].map(name => `src/netlink/rtnl/${name}`),
    ...['device', 'forwarding'].map(name => `src/attach/${name}`),
    'src/lab/host',
    'src/lab/state',
    'src/lab/conformance/exam',
    'src/lab/compare/report',
    // A family of nf_tables.
    'src/netlink/nft/skeleton',
  ],
  dummy: ['src/netlink/rtnl/link', 'src/chain/config/plugin-version'],
  vrf: ['src/netlink/rtnl/link'],
  macvlan: ['src/netlink/rtnl/link', 'src/attach/device', 'src/attach/upper'],
  ipvlan: ['src/netlink/rtnl/link', 'src/attach/upper', 'src/plugin/netns-owner'],
  vlan: ['src/netlink/rtnl/link', 'src/attach/upper', 'src/plugin/netns-owner'],
  // It talks to servers through the interface, so it is called while that exists; the same name is the reference's.
  // In init it is the protocol, as users write it.
  dhcp: ['src/attach/addressing', 'src/cli/init/subnets'],
  // A capability of CONVENTIONS.md.
  bandwidth: [
    'src/delegate/selection',
    'src/lab/configured',
    'src/cli/validate/validate',
    'src/cli/commands/init',
  ],
};

const MAX_LINES = 700;
/** The longest chain of imports, those for a type included, those by import() not. */
const MAX_CHAIN = 18;

/** How many files each entry may reach by the same imports: what a reader of it may have to open. */
const MAX_REACH: Readonly<Record<string, number>> = {
  'src/cli/commands/add': 65,
  'src/chain/run/run': 40,
  'plugins/bridge/plugin': 75,
  'plugins/loopback/plugin': 25,
  'src/delegate/add': 60,
  'src/cli/commands/doctor': 120,
  'src/cli/commands/daemon': 160,
};

// Tests of what holds for many files at once.
const ABOUT_THE_TREE = [
  'test/unit/structure.test.ts',
  'test/unit/plain-english.test.ts',
  'test/unit/reference.test.ts',
  'test/unit/reference-json.test.ts',
  'test/unit/threat-model.test.ts',
  'test/unit/attachments/model.test.ts',
  'test/unit/plugins/defects.test.ts',
  'test/unit/plugins/readme.test.ts',
];

const TOP_LEVEL = [
  ...['package.json', 'tsconfig.json', 'src', 'plugins', 'conflists', 'test', 'README.md'],
  ...['package-lock.json', 'biome.json', 'LICENSE', 'CHANGELOG.md', 'examples'],
];

/** The last argument of a call, of which this is the text after its parenthesis. */
function lastArgument(text: string): string {
  let [depth, from] = [0, 0];
  for (let at = 0; at < text.length; at++) {
    const one = text[at] as string;
    if ('([{'.includes(one)) depth += 1;
    else if (one === ',' && depth === 0 && /\S/.test(text.slice(at + 1, text.indexOf(')', at))))
      from = at + 1;
    else if (')]}'.includes(one) && depth-- === 0) return text.slice(from, at).trim();
  }
  return text;
}
// Modules that open notes, locks and libcni's cache: all others go through src/attachments/store.ts.
const OPENS_ATTACHMENTS = /^src\/attachments\/(hold|notes|entries|lock)(\.ts)?$/;
// The library hands some of them on.
const LIBRARY = 'src/index.ts';

describe('imports', () => {
  test('every source folder has a row in the import table', () => {
    const strange = product.filter(file => rowOf(file.path) === undefined).map(file => file.path);
    expect(strange).toEqual([]);
  });

  test('src/README.md shows the table', () => {
    const rows = Object.entries(MAY_IMPORT).map(([folder, allowed]) => {
      const names = allowed.map(name => `\`${name.replace(/^src\//, '')}\``);
      return [`\`${folder.replace(/^src\//, '')}\``, names.join(', ') || 'nothing of ours'];
    });
    expectGenerated('src/README.md', 'imports', table(['files in', 'may import'], rows));
  });

  test('folders import only what the table names', () => {
    const wrong = product.flatMap(file => {
      const row = rowOf(file.path) ?? '';
      // A file at the top of src or plugins is at home only in itself.
      const allowed = [...(MAY_IMPORT[row] ?? []), ...FOR_EVERYONE, row.replace('*', folderOf(file))];
      const holds = (folder: string, target: string) =>
        isIn(target, folder) && (!(folder in MAY_IMPORT) || rowOf(target) === folder);
      return targetsOf(file)
        .filter(target => !allowed.some(folder => holds(folder, target)))
        .map(target => `${file.path} imports ${target}`);
    });
    expect(wrong).toEqual([]);
  });

  test('no file reaches itself, be it by import() or for a type', () => {
    const targets = new Map(product.map(file => [withoutExtension(file), targetsOf(file)]));
    const cyclic = [...targets.keys()].filter(file => reached(file, targets).has(file));
    expect(cyclic).toEqual([]);
  });

  test('a chain of imports is short enough to follow', () => {
    const targets = importedAtStart();
    const lengths = new Map<string, number>();
    const lengthOf = (file: string): number => {
      const known = lengths.get(file);
      if (known !== undefined) return known;
      const length = 1 + Math.max(0, ...(targets.get(file) ?? []).map(lengthOf));
      lengths.set(file, length);
      return length;
    };
    expect([...targets.keys()].filter(file => lengthOf(file) > MAX_CHAIN)).toEqual([]);
  });

  test('an entry reaches no more files than a reader can open', () => {
    const targets = importedAtStart();
    const sources = (file: string) => [file, ...reached(file, targets)].filter(one => targets.has(one));
    const found = Object.entries(MAX_REACH).map(([file, most]) => ({
      file,
      most,
      files: sources(file).length,
    }));
    expect(found.filter(({ files, most }) => files < 2 || files > most)).toEqual([]);
  });

  test('nothing under src names a plugin folder', () => {
    const wrong = product.filter(
      file => file.path.startsWith('src/') && targetsOf(file).some(t => isIn(t, 'plugins')),
    );
    expect(wrong.map(file => file.path)).toEqual([]);
  });

  test('nothing under src knows a plugin by name', () => {
    const literal = new RegExp(`(['"\`])(${PLUGIN_NAMES.join('|')})\\1`, 'g');
    const found = readSources('src').flatMap(file =>
      [...file.code.matchAll(literal)].map(([, , name = '']) => `${withoutExtension(file)}: ${name}`),
    );
    const allowed = Object.entries(SAME_WORD).flatMap(([name, files]) =>
      files.map(file => `${file}: ${name}`),
    );
    expect([...new Set(found)].sort()).toEqual(allowed.sort());
  });

  test.each(Object.entries(DOORS))('%s comes in through %j only', (name, doors) => {
    const wrong = product.filter(
      file => imports(file, name) && !doors.some(door => isIn(withoutExtension(file), door)),
    );
    expect(wrong.map(file => file.path)).toEqual([]);
  });

  test('the files of attachments are opened through src/attachments/store.ts only', () => {
    const opens = product
      .filter(file => !file.path.startsWith('src/attachments/') && file.path !== LIBRARY)
      .filter(file => file.imports.some(({ target = '' }) => OPENS_ATTACHMENTS.test(target)));
    expect(opens.map(file => file.path)).toEqual([]);
  });

  test('import() appears in few files', () => {
    const wrong = product.filter(file => file.imports.some(found => found.dynamic));
    const lazy = MAY_LOAD_LAZILY.map(file => `${file}.ts`);
    expect(wrong.map(file => file.path).filter(file => !lazy.includes(file))).toEqual([]);
  });

  test('zod comes as zod/mini', () => {
    const wrong = product.filter(file =>
      file.imports.some(found => /^zod($|\/(?!mini$))/.test(found.specifier)),
    );
    expect(wrong.map(file => file.path)).toEqual([]);
  });

  test('one place dumps each table of a node, and others say why they do not take it', () => {
    const dumps =
      /\b(listLinks|listRoutes|listAddresses|listQdiscs|listTables|listTableNames|listChains|listRules|listSets|listElements|listRawElements|listPermanentNeighbours)\(/;
    const found = product
      .filter(({ path: file, code }) => !isIn(file, 'src/netlink') && dumps.test(code))
      .map(withoutExtension);
    const named = Object.keys(DUMPS_FOR_ITSELF);
    expect(found.filter(file => !named.some(name => isIn(file, name)))).toEqual([]);
    expect(named.filter(name => !found.some(file => isIn(file, name)))).toEqual([]);
  });

  test('src/lab makes namespaces in host.ts only, and calls plugins in play.ts only', () => {
    const lab = product.filter(({ path: file }) => file.startsWith('src/lab/'));
    const using = (names: RegExp) => lab.filter(({ code }) => names.test(code)).map(({ path: file }) => file);
    expect(using(/\b(createNetnsAt|unmountNetns)\(/)).toEqual(['src/lab/host.ts']);
    const calls =
      /\b(addNetwork|checkNetwork|deleteNetwork|networkStatus|collectGarbage|handOver|startProcess|serve)\(/;
    expect(using(calls)).toEqual(['src/lab/play.ts']);
  });

  test('processes start in few places, and never through a shell', () => {
    const starts = /\bBun\.spawn(Sync)?\b|\bexeca(Sync|Node)?\(|\bnode:child_process\b|\bBun\.\$/;
    const wrong = product.filter(
      file => starts.test(file.code) && !MAY_START_PROCESSES.includes(withoutExtension(file)),
    );
    expect(wrong.map(file => file.path)).toEqual([]);
    const shell =
      /\bshell:\s*true|['"`](\/(usr\/)?bin\/)?(ba|da|z|k)?sh['"`]|(^|[^.\w])(exec|execSync|system|popen)\(\s*['"`]/m;
    // Names of shells that can be taught to complete a line.
    const names = 'src/cli/completion/question.ts';
    const withShell = product.filter(file => file.path !== names && shell.test(file.code));
    expect(withShell.map(file => file.path)).toEqual([]);
  });

  test('a wait whose length is no constant begins in src/wait.ts', () => {
    const begins = /\b(setTimeout|setInterval|AbortSignal\.timeout|Bun\.sleep(?:Sync)?)\(/g;
    const isBounded = (ms: string) => /^(Math\.min\()?[A-Z\d_.]+( [*/] [A-Z\d_]+)?(,|$)/.test(ms);
    // The page's own durations are constants of one object.
    const looked = product.filter(
      ({ path: file }) => file !== 'src/wait.ts' && !file.startsWith('src/ui/page'),
    );
    const wrong = looked.flatMap(file =>
      [...file.code.matchAll(begins)].flatMap(({ 0: name, index }) => {
        const ms = lastArgument(file.code.slice(index + name.length));
        return isBounded(ms) ? [] : [`${file.path}: ${name}… ${ms})`];
      }),
    );
    expect(wrong).toEqual([]);
    expect(isBounded('IDLE_MS') && isBounded('20') && !isBounded('ms') && !isBounded('limitMs / SIGNS')).toBe(
      true,
    );
  });

  test('modules of the runtime have the node: prefix', () => {
    const builtin =
      /^(assert|buffer|child_process|crypto|dgram|events|fs|http|net|os|path|process|stream|util)(\/|$)/;
    const wrong = [...product, ...tests].filter(file =>
      file.imports.some(found => builtin.test(found.specifier)),
    );
    expect(wrong.map(file => file.path)).toEqual([]);
  });

  test('our own files are imported with their extension', () => {
    const wrong = [...product, ...tests].flatMap(file => {
      return file.imports
        .filter(found => found.target !== undefined && !/\.(tsx?|json|txt|proto)$/.test(found.specifier))
        .map(found => `${file.path} imports ${found.specifier}`);
    });
    expect(wrong).toEqual([]);
  });

  /** What each file loads when it is loaded itself: everything, and the files of ours. */
  const loadedAtOnce = () => {
    const eager = new Map(
      product.map(file => [
        withoutExtension(file),
        file.imports.filter(found => !found.dynamic && !found.typeOnly),
      ]),
    );
    const targets = new Map(
      [...eager].map(([file, found]) => [file, found.flatMap(({ target = [] }) => target)] as const),
    );
    return { eager, targets };
  };

  test('what every start loads needs nothing of Node and no package', () => {
    const { eager, targets } = loadedAtOnce();
    const wrong = ['plugins/main', ...reached('plugins/main', targets)].filter(file =>
      eager.get(file)?.some(({ target }) => target === undefined),
    );
    expect(wrong).toEqual([]);
  });

  // Processor time that each adds to a start of 5 ms: node:fs 1.2 ms, node:os, node:async_hooks and bun:ffi less than 1; node:tty, node:net,
  // node:crypto and node:stream 2.5 to 4.5. A module that one call in many needs is loaded by that call.
  test('what a plugin loads at its start needs few modules of the runtime', () => {
    const light = ['node:fs', 'node:path', 'node:os', 'node:async_hooks', 'node:timers/promises', 'bun:ffi'];
    const { eager, targets } = loadedAtOnce();
    const started = ['src/plugin/run', ...PLUGIN_NAMES.map(name => `plugins/${name}/plugin`)];
    const loaded = started.flatMap(file => [file, ...reached(file, targets)]);
    const heavy = [...new Set(loaded)].flatMap(file =>
      (eager.get(file) ?? [])
        .map(({ specifier }) => specifier)
        .filter(name => /^(node|bun):/.test(name) && !light.includes(name))
        .map(name => `${file} loads ${name}`),
    );
    expect(heavy).toEqual([]);
  });

  test('a probe of the daemon loads nothing that runs chains', () => {
    const { targets } = loadedAtOnce();
    const loaded = [...reached('src/cli/daemon/control', targets)];
    expect(loaded.filter(file => /^src\/(chain\/run|worker)\//.test(file))).toEqual([]);
  });

  test('the library and all that it reaches need nothing of Bun', () => {
    const portable = product.filter(file =>
      [
        'src/net',
        'src/cni',
        'src/files',
        'src/attachments',
        'src/chain',
        'src/delegate',
        'src/index',
      ].includes(rowOf(file.path) ?? ''),
    );
    const wrong = portable.filter(
      file => /\bBun\./.test(file.code) || file.imports.some(i => /^bun(:|$)/.test(i.specifier)),
    );
    expect(wrong.map(file => file.path)).toEqual([]);
    // Node has no such modules, wherever the file stands that loads one.
    const { eager, targets } = loadedAtOnce();
    const loading = [...reached('src/index', targets)].filter(file =>
      eager.get(file)?.some(({ specifier }) => /^bun(:|$)/.test(specifier)),
    );
    expect(loading).toEqual([]);
  });
});

describe('files', () => {
  test('begin with a comment that says what question they answer', () => {
    const wrong = product.filter(file => !/^(#!.*\n)?(\/\/ \S|\/\*\*? \S)/.test(file.text));
    expect(wrong.map(file => file.path)).toEqual([]);
  });

  test(`have at most ${MAX_LINES} lines`, () => {
    const checked = [...product, ...readSources('test/helpers')];
    expect(checked.filter(file => file.lines > MAX_LINES).map(file => `${file.path}: ${file.lines}`)).toEqual(
      [],
    );
  });

  test('export by name: no defaults, no export *', () => {
    const wrong = [...product, ...tests].filter(file => {
      return (
        /^\s*export\s+(default\b|\*)/m.test(file.code) ||
        /^\s*export\s*\{[^}]*\bas default\b/m.test(file.code)
      );
    });
    expect(wrong.map(file => file.path)).toEqual([]);
  });

  test('are no barrels, besides the entries of the package', () => {
    const index = product.filter(file => /(^|\/)(index|mod)\.ts$/.test(file.path)).map(file => file.path);
    const entries = [
      'src/index.ts',
      ...['plugin', 'plugin/schema', 'lab/testing'].map(name => `src/${name}/index.ts`),
    ];
    expect(index.filter(file => !entries.includes(file))).toEqual([]);
  });

  test('have no catch-all names', () => {
    const vague = /(^|\/)(utils?|helpers?|common|core|misc|shared)(\.ts|\/)/;
    expect(product.map(file => file.path).filter(file => vague.test(file))).toEqual([]);
  });

  test('of tests belong to one command each, and the table of commands names no other', () => {
    const files = testFiles();
    expect(files.filter(file => ringOf(file) === undefined)).toEqual([]);
    expect(NAMED.filter(file => !files.includes(file))).toEqual([]);
  });

  test('of test/unit are named after the file that they test', () => {
    const about = new Set(
      product.flatMap(file => [withoutExtension(file), withoutExtension(file).replace(/^[^/]+\//, '')]),
    );
    const stray = tests
      .map(file => file.path)
      .filter(
        file => file.startsWith('test/unit/') && file.endsWith('.test.ts') && !ABOUT_THE_TREE.includes(file),
      )
      .filter(file => !about.has(file.slice('test/unit/'.length, -'.test.ts'.length)));
    expect(stray).toEqual([]);
  });
});

describe('repository', () => {
  test('has the agreed top-level entries', () => {
    const built = ['node_modules', 'dist'];
    const entries = fs.readdirSync(ROOT).filter(name => !name.startsWith('.') && !built.includes(name));
    expect(entries.filter(name => !TOP_LEVEL.includes(name))).toEqual([]);
  });

  test('has one plugin folder per shipped name', () => {
    const folders = fs
      .readdirSync(path.join(ROOT, 'plugins'), { withFileTypes: true })
      .filter(it => it.isDirectory() && !['build', 'front'].includes(it.name));
    expect(folders.map(folder => folder.name).sort()).toEqual([...PLUGIN_NAMES, RUNNER_NAME].sort());
  });

  test('has a lockfile that names no registry host', () => {
    const lock = JSON.parse(fs.readFileSync(path.join(ROOT, 'package-lock.json'), 'utf8'));
    const packages = Object.entries<Record<string, unknown>>(lock.packages);
    expect(packages.filter(([, entry]) => 'resolved' in entry).map(([name]) => name)).toEqual([]);
    const missing = packages
      .filter(([name, entry]) => name !== '' && !('integrity' in entry))
      .map(([name]) => name);
    expect(missing).toEqual([]);
  });

  test('has every file that its pages name', () => {
    const files = listFiles('.');
    // One is built, the other a reader's own.
    const known = new Set(['tables.h', 'motd.ts', ...files.map(file => path.basename(file))]);
    const unknown = files
      .filter(file => file.endsWith('.md'))
      .flatMap(file => {
        const text = fs.readFileSync(path.join(ROOT, file), 'utf8');
        const named = [...text.matchAll(/(?<![.\w])[\w-][\w.-]*\.(?:tsx?|c|h|mjs|js|css)\b/g)].map(
          ([name]) => name,
        );
        return named.filter(name => !known.has(name)).map(name => `${file}: ${name}`);
      });
    expect(unknown).toEqual([]);
  });

  test('names no registry host and no path of one machine', () => {
    const foreign = /\bregistry\.(npmjs|yarnpkg)\b|^registry\s*=|(?<![\w./-])\/(home|root|work|Users)\/\w/m;
    const wrong = listFiles('.').filter(file => {
      const bytes = fs.readFileSync(path.join(ROOT, file));
      return !bytes.includes(0) && !file.endsWith('.log') && foreign.test(bytes.toString());
    });
    expect(wrong).toEqual([]);
  });
});

describe('parseSource()', () => {
  const specifiers = (text: string): string[] =>
    parseSource('src/a/b.ts', text).imports.map(found => found.specifier);

  test('finds every form of import', () => {
    const text = [
      `import fs from 'node:fs';`,
      `import type { A } from "./a.ts";`,
      `import {\n  b,\n  type C,\n} from '../c/d.ts';`,
      `import * as z from 'zod/mini';`,
      `import './effect.ts';`,
      `export { e } from './e.ts';`,
      `export * from './f.ts';`,
      `const g = () => import('./g.ts');`,
    ].join('\n');
    const own = ['./a.ts', '../c/d.ts', './effect.ts', './e.ts', './f.ts', './g.ts'];
    expect(specifiers(text).sort()).toEqual(['node:fs', 'zod/mini', ...own].sort());
    expect(parseSource('src/a/b.ts', text).imports.map(found => found.target)).toContain('src/c/d');
  });

  test('ignores comments, but not what follows a string with slashes', () => {
    expect(
      specifiers(`// import x from 'x'\n/* import('y') */\nconst u = 'http://a'; const v = import('z');`),
    ).toEqual(['z']);
  });
});

/** The row of a file, which is that of the innermost folder that has one. */
function rowOf(file: string): string | undefined {
  const parts = file.replace(/\.tsx?$/, '').split('/');
  const rows = parts.map((_, at) => parts.slice(0, at + 1).join('/')).filter(row => row in MAY_IMPORT);
  return rows.at(-1) ?? (parts[0] === 'plugins' && parts.length > 2 ? 'plugins/*' : undefined);
}

function folderOf(file: SourceFile): string {
  return file.path.split('/')[1] ?? '';
}

function targetsOf(file: SourceFile): string[] {
  return file.imports.flatMap(found => (found.target === undefined ? [] : [found.target]));
}

/** What each file imports, for its types too, without import(). */
function importedAtStart(): Map<string, string[]> {
  const importsOf = (file: SourceFile) =>
    file.imports.flatMap(({ target = [], dynamic }) => (dynamic ? [] : target));
  return new Map(product.map(file => [withoutExtension(file), importsOf(file)]));
}

function reached(file: string, targets: ReadonlyMap<string, readonly string[]>): Set<string> {
  const found = new Set<string>();
  const next = [...(targets.get(file) ?? [])];
  for (let one = next.pop(); one !== undefined; one = next.pop()) {
    if (found.has(one)) continue;
    found.add(one);
    next.push(...(targets.get(one) ?? []));
  }
  return found;
}

function imports(file: SourceFile, name: string): boolean {
  return file.imports.some(({ specifier }) => specifier === name || specifier.startsWith(`${name}/`));
}

function isIn(target: string, folder: string): boolean {
  return target === folder || target.startsWith(`${folder}/`);
}

function withoutExtension(file: SourceFile): string {
  return file.path.replace(/\.tsx?$/, '');
}
