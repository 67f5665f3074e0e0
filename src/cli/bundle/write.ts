// What does `catena doctor --bundle` do?
import { closeSync, existsSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { type BundleFile, packBundle } from '../../bundle/pack.ts';
import { findNames, openPseudonyms } from '../../bundle/pseudonyms.ts';
import { redactText } from '../../bundle/redact.ts';
import { absolutePath } from '../../files/absolute-path.ts';
import { putNewFile } from '../../files/put-file.ts';
import { unfinishedName } from '../../files/unfinished.ts';
import type { CommandCall } from '../command.ts';
import { printAnswer } from '../output/print.ts';
import { openProgress } from '../terminal/progress.ts';
import { TOOL_VERSION } from '../tool-version.ts';
import { askCommands, placesOf, readFacts } from './collect.ts';

/** Writes an archive for a report, with secrets masked, and shows what is in it. */
export async function run(call: CommandCall): Promise<number> {
  const now = new Date();
  const name = `catena-bundle-${now.toISOString().replaceAll(/[-:]|\.\d+/g, '')}`;
  const file = absolutePath(call.text('bundle') ?? '', call.cwd);
  refuseExisting(file);
  const anonymous = call.on('anonymous');
  const places = placesOf(call);
  const progress = openProgress(call, 'doctor');
  const facts = readFacts(call, places, anonymous);
  const answers = await askCommands(call, places, progress.step).finally(progress.end);
  const read = [...facts, ...answers].map(one => ({ ...one, text: redactText(one.text) }));
  const host = { kind: 'host', names: [hostname()] };
  const hide = anonymous
    ? openPseudonyms([host, ...findNames(read.map(one => one.text))])
    : (text: string) => text;
  const files = read.map(({ name, what, text }) => ({
    name: hide(name),
    what: hide(what),
    text: hide(text),
  }));
  const note = noteOn(anonymous, now);
  const bytes = packBundle(name, files, note, now);
  write(file, bytes);
  const listed = files.map(one => ({ name: one.name, what: one.what, bytes: Buffer.byteLength(one.text) }));
  const answer = { file, bytes: bytes.length, anonymous, files: listed };
  await printAnswer(call, 'Bundle', answer, { text: () => render(file, bytes.length, files, note) });
  return 0;
}

function refuseExisting(file: string): void {
  if (existsSync(file))
    throw new Error(`Cannot write "${file}": it exists; remove it, or choose another file`);
}

/** Only its owner may read it: what is masked is what could be recognised. */
function write(file: string, bytes: Uint8Array): void {
  try {
    closeSync(putNewFile(file, bytes, join(dirname(file), unfinishedName())));
  } catch (cause) {
    refuseExisting(file);
    throw new Error(`Cannot write "${file}": ${(cause as Error).message}`, { cause });
  }
}

function noteOn(anonymous: boolean, now: Date): string {
  return [
    `Report of catena ${TOOL_VERSION}, ${now.toISOString()}.`,
    'Masked: values of keys named like secrets, tokens, private keys, certificates, kubeconfig data, and environments.',
    anonymous
      ? 'Replaced, each by the same word in all files: addresses, names of pods, of their namespaces and containers, and of the host.'
      : 'Not replaced: addresses and names (--anonymous replaces them).',
    'Look through it before you send it: a secret that is neither named nor shaped like one cannot be recognised.',
  ].join('\n');
}

function render(file: string, size: number, files: readonly BundleFile[], note: string): string {
  const single = files.filter(({ name }) => !name.includes('/'));
  const kinds = new Set(files.filter(({ name }) => name.includes('/')).map(({ name }) => name.split('/')[0]));
  const width = Math.max(...single.map(({ name }) => name.length));
  return [
    note,
    '',
    ...single.map(({ name, what }) => `  ${name.padEnd(width)}  ${what}`),
    ...[...kinds].map(kind => {
      const count = files.filter(({ name }) => name.startsWith(`${kind}/`)).length;
      return `  ${`${kind}/`.padEnd(width)}  ${count} ${count === 1 ? 'file' : 'files'}`;
    }),
    '',
    `wrote ${file}: ${files.length + 1} files, ${Math.ceil(size / 1024)} KiB`,
    `look at it: tar -tzf ${file}`,
    '',
  ].join('\n');
}
