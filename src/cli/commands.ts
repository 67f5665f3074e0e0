// Which commands does the tool have, and what do they take?
import type { Command, CommandOption } from './command.ts';

/** Options every command takes. */
export const GLOBAL_OPTIONS: Readonly<Record<string, CommandOption>> = {
  help: { type: 'boolean', help: 'show how the command is used' },
  json: { type: 'boolean', help: 'report errors as JSON of the CNI specification' },
};

const NETWORK_OPTIONS: Readonly<Record<string, CommandOption>> = {
  'conf-dir': {
    type: 'string',
    placeholder: '<dir>',
    help: 'directory of network configurations (NETCONFPATH; /etc/cni/net.d)',
  },
  file: {
    type: 'string',
    placeholder: '<conflist>',
    help: 'take the network from this file instead of the directory',
  },
  'bin-dir': {
    type: 'string',
    multiple: true,
    placeholder: '<dir>',
    help: 'directory of plugins, repeatable (CNI_PATH; /opt/cni/bin)',
  },
  'cni-cache-dir': {
    type: 'string',
    placeholder: '<dir>',
    help: 'directory of the result cache (CATENA_CNI_CACHE_DIR; /var/lib/cni)',
  },
  timeout: { type: 'string', placeholder: '<seconds>', help: 'time each plugin may take (60)' },
};

const ATTACHMENT_OPTIONS: Readonly<Record<string, CommandOption>> = {
  ...NETWORK_OPTIONS,
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
      ...NETWORK_OPTIONS,
      valid: {
        type: 'string',
        multiple: true,
        placeholder: '<id>/<ifname>',
        help: 'an attachment to keep, repeatable',
      },
      all: { type: 'boolean', help: 'keep none' },
    },
    load: () => import('./commands/gc.ts'),
  },
  {
    name: 'status',
    summary: 'ask every link whether it could attach a container now',
    ...NETWORK,
    options: NETWORK_OPTIONS,
    load: () => import('./commands/status.ts'),
  },
  {
    name: 'version',
    summary: "show the tool's version, or what each link of a network supports",
    usage: '[<network>]',
    positionals: { min: 0, max: 2 },
    options: NETWORK_OPTIONS,
    load: () => import('./commands/version.ts'),
  },
  {
    name: 'try',
    summary: 'run a list in throwaway namespaces and show what each link does',
    usage: '<conflist>',
    positionals: { min: 1, max: 1 },
    options: {
      'bin-dir': {
        type: 'string',
        multiple: true,
        placeholder: '<dir>',
        help: 'directory of plugins, repeatable (that of this executable)',
      },
      ifname: { type: 'string', placeholder: '<name>', help: 'interface in the container (eth0)' },
      args: { type: 'string', placeholder: '<K=V;…>', help: 'arguments for the plugins' },
      cap: {
        type: 'string',
        placeholder: '<json>',
        help: 'capability arguments, instead of the two ports and the rates that are offered',
      },
      'keep-going': { type: 'boolean', help: 'probe on after something went wrong' },
    },
    load: () => import('./commands/try.ts'),
  },
  {
    name: 'validate',
    summary: 'find what is wrong with a list, or with a directory of them',
    usage: '<file or directory>',
    positionals: { min: 1, max: 1 },
    options: {
      'bin-dir': {
        type: 'string',
        multiple: true,
        placeholder: '<dir>',
        help: 'directory of plugins, repeatable (CNI_PATH; /opt/cni/bin)',
      },
      'files-only': { type: 'boolean', help: 'do not look for executables, nor ask them what they support' },
      strict: { type: 'boolean', help: 'fail on warnings too' },
    },
    load: () => import('./commands/validate.ts'),
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
