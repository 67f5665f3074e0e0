// What does a user of a command type?

/** A command line that can be copied, and what it does. */
export interface Example {
  readonly text: string;
  readonly line: string;
}

/** Examples of each command. A test runs every line on a node that has the network `web-net` and the namespace `web`. */
export const EXAMPLES: Readonly<Record<string, readonly Example[]>> = {
  add: [
    { text: 'attach a namespace made by "ip netns add web"', line: 'catena add web-net web' },
    {
      text: 'forward port 8080 of the host to port 80',
      line: 'catena add web-net web --ifname eth1 -p 8080:80',
    },
  ],
  check: [{ text: 'is the attachment intact?', line: 'catena check web-net web' }],
  del: [
    {
      text: 'detach it, with the interface that add was given',
      line: 'catena del web-net web --ifname eth1',
    },
  ],
  set: [
    {
      text: 'forward another port, without a restart',
      line: 'catena set /run/netns/web eth0 -p 8081:80',
    },
  ],
  attach: [{ text: 'give the container one more network', line: 'catena attach /run/netns/web back-net' }],
  detach: [{ text: 'take that network away', line: 'catena detach /run/netns/web back-net' }],
  ls: [
    { text: 'what is attached', line: 'catena ls' },
    { text: 'run CHECK of everything, and fail if something is broken', line: 'catena ls --check' },
    { text: 'names only, for scripts', line: 'catena ls --network web-net --output name' },
    { text: 'draw the node with characters', line: 'catena ls --output tree' },
    { text: 'as an image for a report', line: 'catena ls --output svg' },
    { text: 'what a crash left to be undone', line: 'catena ls --unsettled' },
  ],
  who: [
    { text: 'whose address is this?', line: 'catena who 10.99.0.2' },
    { text: 'who forwards this port?', line: 'catena who :8081' },
  ],
  'why-not': [
    { text: 'why does this port not answer?', line: 'catena why-not :8081' },
    { text: 'why can this container not reach that host?', line: 'catena why-not web 1.1.1.1:443' },
  ],
  log: [
    { text: 'what changed within the last hour', line: 'catena log --since 1h' },
    { text: 'recent requests that were traced', line: 'catena log --requests' },
  ],
  ipam: [
    { text: 'which addresses are leased', line: 'catena ipam ls web-net' },
    { text: 'the same for another program', line: 'catena ipam ls web-net --output yaml' },
    { text: 'why an address is not free', line: 'catena ipam why web-net 10.99.0.2' },
  ],
  networks: [
    { text: 'which file do runtimes use, and why?', line: 'catena networks --why' },
    { text: 'which CNI versions its plugins support', line: 'catena networks --versions web-net' },
  ],
  ui: [{ text: 'open the printed address in a browser on this machine', line: 'catena ui' }],
  doctor: [
    { text: 'examine the node', line: 'catena doctor' },
    { text: 'send packets for all that is attached', line: 'catena doctor --traffic' },
    { text: 'an archive for a bug report', line: 'catena doctor --bundle report.tar.gz' },
    {
      text: 'one that names neither pods nor addresses',
      line: 'catena doctor --bundle public.tar.gz --anonymous',
    },
  ],
  repair: [{ text: 'what would be repaired', line: 'catena repair --dry-run' }],
  gc: [{ text: 'what would be deleted if nothing were valid', line: 'catena gc web-net --all --dry-run' }],
  status: [{ text: 'could a container be attached now?', line: 'catena status web-net' }],
  init: [
    { text: 'answer four questions, with free subnets suggested', line: 'catena init' },
    {
      text: 'without a question: a bridge with free subnets, ports and rates',
      line: 'catena init front-net --kind bridge --subnet auto --ports --rates',
    },
    { text: 'begin a plugin of your own', line: 'catena init motd --plugin --dir ./motd' },
  ],
  validate: [
    { text: 'check all lists of the node', line: 'catena validate /etc/cni/net.d' },
    {
      text: 'check one list, before its plugins are installed',
      line: 'catena validate --files-only web-net.conflist',
    },
    { text: 'each line of a network in a sentence', line: 'catena validate --explain web-net' },
    { text: 'the schema of the bridge plugin, for an editor', line: 'catena validate --schema bridge' },
    { text: 'the schema of what doctor --json prints', line: 'catena validate --schema Diagnosis' },
  ],
  try: [
    { text: 'run a list where it can do no harm', line: 'catena try web-net.conflist' },
    { text: 'the same with a network of this node', line: 'catena try web-net' },
  ],
  conformance: [
    {
      text: 'examine one plugin of a list',
      line: 'catena conformance /opt/cni/bin/tuning --from web-net.conflist',
    },
  ],
  install: [
    { text: 'what would be installed where', line: 'catena install --dry-run' },
    {
      text: 'the executables, and completion for bash, zsh and fish',
      line: 'catena install --share-dir /usr/local/share --dry-run',
    },
    { text: 'a systemd unit to look at', line: 'catena install --print systemd' },
  ],
  uninstall: [{ text: 'what would be removed', line: 'catena uninstall --dry-run' }],
  compare: [
    {
      text: 'may these executables replace ours?',
      line: 'catena compare web-net.conflist --with /usr/lib/cni --scene life',
    },
  ],
  swap: [{ text: 'which executable a plugin of a network has', line: 'catena swap web-net --link tuning' }],
  handover: [
    {
      text: 'would these executables delete what stands?',
      line: 'catena handover --to /usr/lib/cni --dry-run',
    },
  ],
  daemon: [
    { text: 'does a daemon run?', line: 'catena daemon --status' },
    { text: 'does it answer?', line: 'catena daemon --ping' },
  ],
  help: [
    { text: 'arguments, options and examples of a command', line: 'catena help attach' },
    { text: 'what an error code means', line: 'catena help 11' },
    { text: 'the page of the manual', line: 'catena help attach --man' },
    {
      text: 'a file that bash reads when it starts, or: source <(catena help --completion bash)',
      line: 'catena help --completion bash',
    },
  ],
};
