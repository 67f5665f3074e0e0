// Which command does an HTTP request ask for?
import * as z from 'zod/mini';
import { describeIssue, type JsonObject, tryParse } from '../cni/json.ts';
import type { RunReply } from './protocol.ts';

/** The command line that a request asks for, or why it asks for none. */
export type ParsedRequest = { readonly args: readonly string[] } | { readonly problem: string };

const Network = {
  /** Name of the network. */
  network: z.string().check(z.minLength(1)),
  /** Configuration directory, or a single configuration file. */
  confDir: z.optional(z.string()),
  file: z.optional(z.string()),
  /** Plugin directories, in search order. */
  binDirs: z.optional(z.array(z.string())),
};

const Arguments = z.optional(z.custom<JsonObject>(value => typeof value === 'object' && value !== null));

const Attachment = z.strictObject({
  ...Network,
  /** Path of the network namespace; may be left out for `del`. */
  netns: z.optional(z.string()),
  containerId: z.optional(z.string()),
  ifname: z.optional(z.string()),
  /** `CNI_ARGS`, `K=V;…`. */
  args: z.optional(z.string()),
  capabilityArgs: Arguments,
});

const Garbage = z.strictObject({
  ...Network,
  /** Attachments to keep. */
  valid: z.optional(z.array(z.strictObject({ containerId: z.string(), ifname: z.string() }))),
  all: z.optional(z.boolean()),
  dryRun: z.optional(z.boolean()),
});

/** What names an attachment of a container that runs. */
const Running = {
  /** Id, beginning of an id, name, pod or path, as on the command line. */
  container: z.string().check(z.minLength(1)),
  network: Network.network,
  binDirs: Network.binDirs,
};

const Change = z.strictObject({
  ...Running,
  ifname: z.optional(z.string()),
  capabilityArgs: Arguments,
  /** Options of plugins, by type. */
  options: Arguments,
});

const Attach = z.strictObject({
  ...Running,
  ...Network,
  ifname: z.optional(z.string()),
  args: z.optional(z.string()),
  capabilityArgs: Arguments,
  defaultRoute: z.optional(z.boolean()),
});

/** Here `network` may be the name of an interface. */
const Detach = z.strictObject({ ...Running, force: z.optional(z.boolean()) });

const Status = z.strictObject(Network);

/** Verbs that are posted to `/v1/<verb>`, with the schema of their body. */
const VERBS = {
  ...{ add: Attachment, check: Attachment, del: Attachment, gc: Garbage, status: Status },
  ...{ set: Change, attach: Attach, detach: Detach },
} as const;

/**
 * The command behind a method and path: `POST /v1/add` (or another verb) with a JSON body, or `GET /v1/attachments`.
 * @param body body of the request, as text
 * @returns undefined for any other path
 */
export function commandOf(method: string, path: string, body: string): ParsedRequest | undefined {
  if (method === 'GET' && path === '/v1/attachments') return { args: ['ls', '--all', '--json'] };
  const [, verb = ''] = /^\/v1\/([a-z]+)$/.exec(path) ?? [];
  if (method !== 'POST' || !Object.hasOwn(VERBS, verb)) return undefined;
  const schema = VERBS[verb as keyof typeof VERBS];
  const parsed = z.safeParse(schema, tryParse(body), { reportInput: true });
  if (!parsed.success) {
    return {
      problem: `the body is not a request for "${verb}": ${parsed.error.issues.map(describeIssue).join('; ')}`,
    };
  }
  const { data } = parsed;
  const { options, positionals } = 'container' in data ? runningArguments(verb, data) : argumentsOf(data);
  // Nothing after `--` is parsed as an option.
  return { args: [verb, ...options, '--json', '--', ...positionals] };
}

/** The result of a verb, or the error object of the specification. */
export function toResponse({ exitCode, stdout, stderr }: RunReply): Response {
  const status = exitCode === 0 ? 200 : exitCode === USAGE ? 400 : 500;
  // Warnings precede the error. A verb that fails with a report has no error.
  const error = stderr.trimEnd().split('\n').at(-1) ?? '';
  const body = exitCode === 0 || stdout !== '' ? stdout : `${error}\n`;
  return new Response(body.trim() === '' ? '{}\n' : body, {
    status,
    headers: { 'content-type': 'application/json' },
  });
}

/** The tool's exit code for a command line that it cannot use. */
const USAGE = 2;

/** About a container that runs. */
type RunningBody = z.output<typeof Change> | z.output<typeof Attach> | z.output<typeof Detach>;
type Body = Exclude<z.output<(typeof VERBS)[keyof typeof VERBS]>, RunningBody>;

interface Line {
  readonly options: string[];
  readonly positionals: string[];
}

function runningArguments(verb: string, body: RunningBody): Line {
  const { container, network, binDirs = [] } = body;
  const texts = body as Readonly<Record<string, unknown>>;
  const text = (name: string, key: string) => option(name, texts[key] as string | undefined);
  const json = (name: string, key: string) =>
    option(name, texts[key] === undefined ? undefined : JSON.stringify(texts[key]));
  const options = [
    ...[...text('conf-dir', 'confDir'), ...text('file', 'file')],
    ...binDirs.flatMap(dir => option('bin-dir', dir)),
    ...[...text('ifname', 'ifname'), ...text('args', 'args')],
    ...[...json('cap', 'capabilityArgs'), ...json('conf', 'options')],
    ...(texts.defaultRoute ? ['--default-route'] : []),
    ...(texts.force ? ['--force'] : []),
  ];
  return { options, positionals: verb === 'set' ? [network, container] : [container, network] };
}

function argumentsOf(body: Body): Line {
  const { network, confDir, file, binDirs = [] } = body;
  const common = [
    ...option('conf-dir', confDir),
    ...option('file', file),
    ...binDirs.flatMap(dir => option('bin-dir', dir)),
  ];
  if ('netns' in body || 'containerId' in body) {
    const { netns = '', containerId, ifname, args, capabilityArgs } = body;
    const own = [
      ...option('container-id', containerId),
      ...option('ifname', ifname),
      ...option('args', args),
      ...option('cap', capabilityArgs && JSON.stringify(capabilityArgs)),
    ];
    return { options: [...common, ...own], positionals: [network, netns] };
  }
  if ('valid' in body || 'all' in body) {
    const keep = (body.valid ?? []).flatMap(one => option('valid', `${one.containerId}/${one.ifname}`));
    const switches = [...(body.all ? ['--all'] : []), ...(body.dryRun ? ['--dry-run'] : [])];
    return { options: [...common, ...keep, ...switches], positionals: [network] };
  }
  return { options: common, positionals: [network] };
}

function option(name: string, value: string | undefined): string[] {
  return value === undefined ? [] : [`--${name}=${value}`];
}
