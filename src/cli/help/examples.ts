// What does a user of a command type?

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
  swap: [['which executable a plugin of a network has', 'catena swap web-net --link tuning']],
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
