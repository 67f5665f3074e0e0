// Do the executables, started as a runtime does, withstand damaged environments, standard input and files, with a real container?
import fs from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { isObject } from '../../../src/cni/json.ts';
import { type Finished, run } from '../../helpers/command.ts';
import { ROOT } from '../../helpers/source-tree.ts';
import { door } from '../door.ts';
import { ground } from '../ground.ts';
import { damagedJson, damagedJsonText, strangeText } from '../mutate.ts';
import { checkErrorReply } from '../promise.ts';
import { LISTS, REQUESTS } from '../samples.ts';
import { atHome, environmentOf } from './home.ts';

const BIN = path.join(ROOT, 'dist/bin');
const PLUGINS = fs.existsSync(BIN) ? fs.readdirSync(BIN).filter(name => !name.startsWith('.')) : ['catena'];
/** Created by `run.ts`. */
const CONTAINER = '/run/netns/c1';
const DEADLINE_MS = 25_000;

const id = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('c1', 'c2') },
  { weight: 1, arbitrary: strangeText },
);
const ifname = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('eth0', 'net1') },
  { weight: 1, arbitrary: strangeText },
);

/** One call of a plugin, possibly the delegate runner. */
export const links = door({
  name: 'plugin executables',
  weight: 0.5,
  arbitrary: fc.record({
    plugin: fc.constantFrom(...PLUGINS),
    command: fc.constantFrom('ADD', 'ADD', 'DEL', 'DEL', 'CHECK', 'GC', 'STATUS', 'VERSION', 'NONE'),
    id,
    ifname,
    netns: fc.constantFrom(
      CONTAINER,
      CONTAINER,
      CONTAINER,
      '',
      '/nonexistent',
      '/etc/passwd',
      '/proc/self/ns/net',
    ),
    args: strangeText,
    stdin: fc.oneof(
      damagedJson(REQUESTS).map(value => JSON.stringify(atHome(value))),
      damagedJsonText([{}]),
    ),
  }),
  async run({ plugin, command, id, ifname, netns, args, stdin }) {
    const env = {
      ...environmentOf(),
      CNI_COMMAND: command,
      CNI_CONTAINERID: bare(id),
      CNI_IFNAME: bare(ifname),
      CNI_NETNS: netns,
      CNI_PATH: BIN,
      CNI_ARGS: bare(args),
    };
    const finished = await run([path.join(BIN, plugin)], {
      env,
      stdin,
      cwd: ground().dir('cwd'),
      timeoutMs: DEADLINE_MS,
    });
    checkEnd(finished);
    if (finished.exitCode === 0) checkSuccess(finished.stdout);
    else checkErrorReply(finished.stdout);
  },
});

/** The command with a damaged conflist. */
export const command = door({
  name: 'catena command',
  weight: 0.2,
  arbitrary: fc.record({
    verb: fc.constantFrom('add', 'del', 'check', 'status', 'validate', 'list', 'gc'),
    id,
    ifname,
    list: fc.oneof(
      damagedJson(LISTS).map(value => JSON.stringify(atHome(value))),
      damagedJsonText(LISTS),
    ),
  }),
  async run({ verb, id, ifname, list }) {
    const file = path.join(ground().dir('conf'), 'list.conflist');
    fs.writeFileSync(file, list);
    const attachment = [`--container-id=${bare(id)}`, `--ifname=${bare(ifname)}`];
    const words: Readonly<Record<string, string[]>> = {
      list: ['--json'],
      validate: [file],
      status: [`--file=${file}`, 'x'],
      gc: [`--file=${file}`, '--all', 'x'],
    };
    const argv = [
      path.join(BIN, 'catena'),
      verb,
      ...(words[verb] ?? [`--file=${file}`, ...attachment, '--json', '--', 'x', CONTAINER]),
    ];
    const env = { ...environmentOf(), CNI_PATH: BIN };
    checkEnd(await run(argv, { env, cwd: ground().dir('cwd'), timeoutMs: DEADLINE_MS }));
  },
});

/** Arguments and variables of a process cannot contain a zero byte. */
function bare(text: string): string {
  return text.replaceAll('\0', '');
}

function checkEnd({ exitCode, stdout, stderr }: Finished): void {
  // 128 and more is a signal; 2 is an invalid command line.
  if (![0, 1, 2].includes(exitCode)) throw new Error(`it ended with ${exitCode}: ${stderr.slice(0, 500)}`);
  const mistake = /\b(TypeError|RangeError|ReferenceError)\b.{0,300}|^panic.{0,300}/s.exec(
    `${stderr}${stdout}`,
  );
  if (mistake) throw new Error(`it made a mistake: ${mistake[0]}`);
}

function checkSuccess(stdout: string): void {
  if (stdout.trim() !== '' && !isObject(JSON.parse(stdout)))
    throw new Error(`it printed ${stdout.slice(0, 200)}`);
}
