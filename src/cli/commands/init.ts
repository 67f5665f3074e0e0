// What does `catena init` do: which network does the user want, by options or by answers, and which list is that?
import { existsSync, mkdirSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { isatty } from 'node:tty';
import { decode, didYouMean, type JsonObject } from '../../cni/json.ts';
import type { NetworkKind, PluginAbout, PluginCatalog } from '../../cni/plugin-about.ts';
import { ConflistSchema } from '../../cni/schemas.ts';
import { putNewFile, replaceFile } from '../../files/put-file.ts';
import { absolutePath } from '../../files/read-file.ts';
import { findIfnameProblem, IFNAME_MAX_BYTES } from '../../net/interface.ts';
import { renderCidr } from '../../net/ip.ts';
import { kernelFamilies } from '../../sys/sysctl.ts';
import { type CommandCall, UsageError } from '../command.ts';
import { type Addressing, type InUse, readAddressing, readInUse, suggestSubnet } from '../init/subnets.ts';
import { isData } from '../output/format.ts';
import { printAnswer } from '../output/print.ts';
import { renderColumns, styleOf, widthOf } from '../terminal/lines.ts';
import { NO_EXECUTABLES } from '../validate/executables.ts';
import { countFindings, renderValidation } from '../validate/finding.ts';
import { validatePath } from '../validate/validate.ts';

/** Writes a list for a new network, and says what to do next. */
export async function run(call: CommandCall): Promise<number> {
  const inUse = await readInUse(call);
  const offers = await readOffers(call.plugins);
  const { wish, file } = await answersOf(call, offers.kinds, inUse);
  const list = composeList(wish, offers, nameDevice(wish.name, inUse.devices));
  const text = `${JSON.stringify(list, null, 2)}\n`;
  if (call.on('dry-run')) {
    await printAnswer(call, 'NewNetwork', { file, list }, () => `${text}would be written to ${file}\n`);
    return 0;
  }
  write(file, text, call.on('force'));
  const report = await validatePath(file, call.plugins, NO_EXECUTABLES);
  const { error } = countFindings(report);
  await printAnswer(call, 'NewNetwork', { file, list }, () => {
    const findings = report.findings.length ? renderValidation(report, styleOf(call), widthOf(call)) : '';
    return `${findings}${nextSteps(call, file, describeWish(wish), wish.device)}`;
  });
  return error ? 1 : 0;
}

/** Runtimes of other users read it too, such as rootless podman. */
const MODE = 0o644;

function write(file: string, text: string, force: boolean): void {
  mkdirSync(dirname(file), { recursive: true });
  const put = force ? replaceFile : putNewFile;
  try {
    put(file, text, { mode: MODE });
  } catch (cause) {
    throw new Error(`Cannot write "${file}": ${(cause as Error).message}`, { cause });
  }
}

function nextSteps(call: CommandCall, file: string, what: string, device: string | undefined): string {
  const near = call.cwd === undefined ? file : relative(call.cwd, file);
  const shown = near.startsWith('..') ? file : near;
  const on = device === undefined ? '' : ` --device ${device}`;
  const steps = [
    [`catena validate --explain ${shown}`, 'what each line does'],
    [`catena try ${shown}${on}`, 'run it in temporary namespaces'],
    [`catena install ${shown}`, 'put it where runtimes look'],
  ] as const;
  const width = Math.max(...steps.map(([line]) => line.length));
  const rows = steps.map(
    ([line, why], i) => `${i === 0 ? 'next: ' : '      '}${line.padEnd(width)}  # ${why}`,
  );
  return [`wrote ${shown}: ${what}`, ...rows, ''].join('\n');
}

export interface Wish {
  readonly name: string;
  readonly kind: NetworkChoice;
  readonly addressing: Addressing;
  /** Of the node: what the network builds on; undefined for that of the default route. */
  readonly device: string | undefined;
  /** Ports may be published. */
  readonly ports: boolean;
  /** Rates may be limited. */
  readonly rates: boolean;
}

/** The version that containerd 1.6, CRI-O and podman 4 read as well; nothing here needs a later one. */
const VERSION = '1.0.0';

/** The capabilities of CONVENTIONS.md behind ports and rates. */
const CAPABILITIES = { ports: 'portMappings', rates: 'bandwidth' } as const;

/** The list, ready to be written. @param ownDevice a name that no device has */
export function composeList(wish: Wish, offers: Offers, ownDevice: string): JsonObject {
  const { name, kind, addressing, device, ports } = wish;
  const ipam = offers.ipamFor(addressing);
  const subnets = typeof addressing === 'string' ? [] : addressing;
  const first = { type: kind.type, ...kind.configure({ ipam, subnets, ownDevice, device, ports }) };
  const more = (['ports', 'rates'] as const).filter(extra => wish[extra]);
  return {
    cniVersion: VERSION,
    name,
    plugins: [first, ...more.map(extra => offers.forCapability(CAPABILITIES[extra]))],
  };
}

/** A name for a device of the network that no device has, `cni-<network>` as far as it fits. */
export function nameDevice(network: string, existing: ReadonlySet<string>): string {
  const plain = network.replaceAll(/[^a-zA-Z0-9-]/g, '');
  for (let i = 1; ; i++) {
    const ending = i === 1 ? '' : String(i);
    const name = `cni-${plain}`.slice(0, IFNAME_MAX_BYTES - ending.length) + ending;
    if (!existing.has(name)) return name;
  }
}

function describeWish({ kind, addressing, ports, rates, device }: Wish): string {
  const more = [...(ports ? ['published ports'] : []), ...(rates ? ['limited rates'] : [])];
  const on = device === undefined ? '' : ` on "${device}"`;
  return [`${kind.name}${on}`, describeAddressing(addressing), ...more].join(', ');
}

function describeAddressing(addressing: Addressing): string {
  if (addressing === 'none') return 'no addresses';
  if (addressing === 'server') return 'addresses of the DHCP server';
  return `addresses of ${addressing.map(renderCidr).join(' and ')}`;
}

/** A kind of network, and the type of the plugin that its list begins with. */
interface NetworkChoice extends NetworkKind {
  readonly type: string;
}

/** What the plugins of this executable offer to lists. */
interface Offers {
  /** By type of plugin; the first is the default. */
  readonly kinds: readonly NetworkChoice[];
  /** The plugin that serves a capability for a container whose interface exists. */
  readonly forCapability: (capability: string) => JsonObject;
  /** Configuration of an IPAM plugin; undefined for no addresses. */
  readonly ipamFor: (addressing: Addressing) => JsonObject | undefined;
}

export async function readOffers({ types, find }: Pick<PluginCatalog, 'types' | 'find'>): Promise<Offers> {
  const found = await Promise.all(types.map(async type => ({ type, about: await find(type) })));
  const abouts = found.flatMap(({ type, about }) => (about ? { ...about, type } : []));
  return {
    kinds: abouts.flatMap(({ type, networkKinds = [] }) => networkKinds.map(kind => ({ ...kind, type }))),
    forCapability(capability) {
      const serves = ({ kind, capabilities }: PluginAbout) =>
        kind === 'meta' && capabilities.includes(capability);
      const { type } = abouts.find(serves) ?? refuse(capability);
      return { type, capabilities: { [capability]: true } };
    },
    ipamFor(addressing) {
      if (addressing === 'none') return undefined;
      const confs = abouts.map(about => about.ipamFor?.(addressing));
      return confs.find(conf => conf !== undefined) ?? refuse('addresses');
    },
  };
}

function refuse(what: string): never {
  throw new Error(`Cannot write a list with ${what}: no plugin of this executable serves it`);
}

/**
 * Options decide; on a terminal, questions are asked about the rest, unless name, kind and subnets are given.
 * @throws UsageError without a terminal, for options that are missing
 * @throws Error for a name, subnet or file that cannot be used
 */
async function answersOf(call: CommandCall, kinds: readonly NetworkChoice[], inUse: InUse) {
  const word = call.text('kind');
  // A wrong word is told before what is missing.
  if (word !== undefined) readKind(word, kinds);
  const missing = [
    ...(call.positionals[0] === undefined ? ['<name>'] : []),
    ...(word === undefined ? ['--kind'] : []),
    ...(call.texts('subnet').length ? [] : ['--subnet']),
  ];
  if (missing.length && (isData(call) || !isatty(0) || !isatty(2))) {
    const reason = isData(call) ? 'beside data no question is asked' : 'there is no terminal to ask on';
    throw new UsageError(
      `Cannot write a list: ${missing.join(', ')} ${missing.length === 1 ? 'is' : 'are'} missing, and ${reason}; for example: catena init podnet --kind bridge --subnet auto`,
    );
  }
  const { ask, close } = openPrompt(call);
  try {
    const { kind, device } = await askKind(call, kinds, ask);
    const addressing = await askAddressing(call, kind, inUse, ask);
    const extras = missing.length
      ? await askExtras(call, kind, addressing, ask)
      : readExtras(call, kind, addressing);
    const { name, file } = await askPlace(call, inUse, ask);
    const wish: Wish = { ...extras, name, kind, addressing, device };
    return { wish, file };
  } finally {
    close();
  }
}

type Ask = Prompt['ask'];

async function askKind(call: CommandCall, kinds: readonly NetworkChoice[], ask: Ask) {
  const given = call.text('kind');
  const read = (word: string, device = call.text('device')) => {
    const kind = readKind(word, kinds);
    return { kind, device: checkDevice(kind, device) };
  };
  if (given !== undefined) return read(given);
  const rows = kinds.map(({ name, text }) => [name, text] as const);
  call.err(`${renderColumns(rows, widthOf(call) ?? 80).join('\n')}\n`);
  return ask('1/4 Which kind of network?', kinds[0]?.name ?? '', answer => {
    const [word = '', device] = answer.split(/[\s,]+/);
    return read(word, device);
  });
}

async function askAddressing(
  call: CommandCall,
  kind: NetworkChoice,
  inUse: InUse,
  ask: Ask,
): Promise<Addressing> {
  const { mayUseDhcp } = kind;
  // Containers may have addresses of the node's own LAN.
  const taken = kind.onLan ? inUse.ranges : inUse.addresses;
  const families = kernelFamilies();
  if (call.texts('subnet').length) return readAddressing(call.texts('subnet'), taken, mayUseDhcp, families);
  const free = families.map(family => renderCidr(suggestSubnet(family, taken)));
  const words = `a subnet of one or both families${mayUseDhcp ? ', dhcp' : ''} or none; the suggested are free on this node`;
  return ask(`2/4 Which addresses? (${words})`, free.join(' '), answer =>
    readAddressing(answer.split(/[\s,]+/), taken, mayUseDhcp, families),
  );
}

async function askExtras(call: CommandCall, kind: NetworkChoice, addressing: Addressing, ask: Ask) {
  const given = readExtras(call, kind, addressing);
  const possible = EXTRAS.filter(extra => findExtraProblem(extra, kind, addressing) === undefined);
  if (possible.length === 0 || given.ports || given.rates) return given;
  const answers = possible.length === EXTRAS.length ? [...EXTRAS, 'both', 'no'] : [...possible, 'no'];
  const what = possible.map(extra => EXTRA_WORDS[extra]).join(' and ');
  const question = `3/4 ${what} of containers that ask for it? (${answers.join(', ')})`;
  return ask(question, answers.includes('both') ? 'both' : 'no', answer => {
    if (!answers.includes(answer)) {
      throw new Error(`Cannot use ${JSON.stringify(answer)}: expected one of ${answers.join(', ')}`);
    }
    const has = (extra: string) => answer === extra || answer === 'both';
    return { ports: has('ports'), rates: has('rates') };
  });
}

async function askPlace(call: CommandCall, inUse: InUse, ask: Ask) {
  const [given] = call.positionals;
  if (given !== undefined) return readPlace(given, call, inUse);
  let free = 'podnet';
  const isTaken = (name: string) =>
    inUse.networks.has(name) || existsSync(`${call.cwd ?? ''}/${name}.conflist`);
  for (let i = 2; isTaken(free); i++) free = `podnet${i}`;
  return ask('4/4 Which name? (and the file, if it is not <name>.conflist)', free, answer => {
    const [name = '', file] = answer.split(/\s+/);
    return readPlace(name, call, inUse, file);
  });
}

function readKind(word: string, kinds: readonly NetworkChoice[]): NetworkChoice {
  const names = kinds.map(({ name }) => name);
  const kind = kinds.find(({ name }) => name === word);
  if (kind) return kind;
  throw new UsageError(
    `Cannot use kind ${JSON.stringify(word)}${didYouMean(word, names) || `: there are ${names.join(', ')}`}`,
  );
}

function checkDevice(kind: NetworkChoice, name: string | undefined): string | undefined {
  if (name === undefined || name === '') return undefined;
  if (!kind.onLan)
    throw new UsageError(`Cannot use device "${name}": a network of kind ${kind.name} has none`);
  const problem = findIfnameProblem(name);
  if (problem !== undefined) throw new UsageError(`Cannot use device "${name}": ${problem}`);
  return name;
}

function readExtras(call: CommandCall, kind: NetworkChoice, addressing: Addressing) {
  for (const extra of EXTRAS.filter(one => call.on(one))) {
    const problem = findExtraProblem(extra, kind, addressing);
    if (problem !== undefined) throw new UsageError(`Cannot use --${extra}: ${problem}`);
  }
  return { ports: call.on('ports'), rates: call.on('rates') };
}

/** What portmap and bandwidth do. */
const EXTRAS = ['ports', 'rates'] as const;
const EXTRA_WORDS = { ports: 'Publish ports', rates: 'Limit rates' } as const;

/** Why the node can do it for no container of the network. */
function findExtraProblem(
  extra: (typeof EXTRAS)[number],
  kind: NetworkChoice,
  addressing: Addressing,
): string | undefined {
  if (kind.onLan) return `packets of a network of kind ${kind.name} do not pass through the node's rules`;
  if (extra === 'rates') return undefined;
  if (addressing === 'none') return 'its containers have no addresses';
  return kind.answersOutside ? undefined : 'its containers have no route by which to answer';
}

function readPlace(name: string, call: CommandCall, inUse: InUse, given = call.text('file')) {
  decode(ConflistSchema, { name }, 'the name');
  const file = absolutePath(given ?? `${name}.conflist`, call.cwd);
  if (!file.endsWith('.conflist'))
    throw new UsageError(
      `Cannot write "${file}": runtimes read lists from files whose names end in ".conflist"`,
    );
  if (call.on('force')) return { name, file };
  const configured = inUse.networks.get(name);
  if (configured !== undefined && resolve(configured) !== file) {
    throw new Error(
      `Cannot name the network "${name}": "${configured}" configures one of that name; choose another name, or use --force`,
    );
  }
  if (existsSync(file))
    throw new Error(`Cannot write "${file}": it exists; choose another file, or use --force to replace it`);
  return { name, file };
}

interface Prompt {
  /**
   * Asks until the answer can be used.
   * @param fallback what an empty answer means
   * @param read throws an error that says why the answer cannot be used
   */
  ask<T>(question: string, fallback: string, read: (answer: string) => T): Promise<T>;
  close(): void;
}

/**
 * Reads standard input line by line, from the first question on; questions go to standard error. What was typed ahead answers the
 * next question.
 */
function openPrompt(call: CommandCall): Prompt {
  let reader: Interface | undefined;
  let lines: AsyncIterator<string> | undefined;
  return {
    async ask(question, fallback, read) {
      reader ??= createInterface({ input: process.stdin, terminal: false });
      lines ??= reader[Symbol.asyncIterator]();
      for (;;) {
        call.err(`${question} [${fallback}] `);
        const { done, value } = await lines.next();
        if (done) throw new Error('Cannot write a list: the input ended before the last answer');
        try {
          return read(value.trim() || fallback);
        } catch (error) {
          call.err(`${(error as Error).message}\n`);
        }
      }
    },
    close: () => reader?.close(),
  };
}
