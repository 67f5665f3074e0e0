// What does `catena init` do?
import { closeSync, fchmodSync, mkdirSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { putNewFile, putOpenFile, unfinishedName } from '../../files/put-file.ts';
import type { CommandCall } from '../command.ts';
import { answersOf, composeList, describeWish, nameDevice, readOffers } from '../init/answers.ts';
import { readInUse } from '../init/subnets.ts';
import { printAnswer } from '../output/print.ts';
import { styleOf, widthOf } from '../terminal/lines.ts';
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
  await printAnswer(
    call,
    'NewNetwork',
    { file, list },
    {
      text() {
        const findings = report.findings.length ? renderValidation(report, styleOf(call), widthOf(call)) : '';
        return `${findings}${nextSteps(call, file, describeWish(wish), wish.device)}`;
      },
    },
  );
  return error ? 1 : 0;
}

/** Runtimes of other users read it too, such as rootless podman. */
const MODE = 0o644;

function write(file: string, text: string, force: boolean): void {
  mkdirSync(dirname(file), { recursive: true });
  let fd: number;
  try {
    fd = force ? putOpenFile(file, text) : putNewFile(file, text, join(dirname(file), unfinishedName()));
  } catch (cause) {
    throw new Error(`Cannot write "${file}": ${(cause as Error).message}`, { cause });
  }
  try {
    fchmodSync(fd, MODE);
  } finally {
    closeSync(fd);
  }
}

function nextSteps(call: CommandCall, file: string, what: string, device: string | undefined): string {
  const near = call.cwd === undefined ? file : relative(call.cwd, file);
  const shown = near.startsWith('..') ? file : near;
  const steps = [
    [`catena validate --explain ${shown}`, 'what each line does'],
    [
      `catena try ${shown}${device === undefined ? '' : ` --device ${device}`}`,
      'run it in temporary namespaces',
    ],
    [`catena install ${shown}`, 'put it where runtimes look'],
  ] as const;
  const width = Math.max(...steps.map(([line]) => line.length));
  const rows = steps.map(
    ([line, why], i) => `${i === 0 ? 'next: ' : '      '}${line.padEnd(width)}  # ${why}`,
  );
  return [`wrote ${shown}: ${what}`, ...rows, ''].join('\n');
}
