// Do commands that take long show what they are doing on a terminal, and nowhere else?
import { expect, test } from 'bun:test';
import path from 'node:path';
import { run } from '../helpers/command.ts';
import { BIN_DIR, REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeNeeding, describeRoot, requiresReference } from '../helpers/skip.ts';
import { ROOT } from '../helpers/source-tree.ts';
import { typeInto } from '../helpers/terminal.ts';

const CATENA = path.join(BIN_DIR, 'catena');
const LIST = path.join(ROOT, 'conflists/bridge-full.conflist');
const OPTIONS = { env: { TERM: 'xterm' }, timeoutMs: 120_000 };
/** Stands for the sequence that erases the line. */
const ERASE = '⌫';

async function onTerminal(args: readonly string[], options = OPTIONS) {
  const { exitCode, shown } = await typeInto([CATENA, ...args], '', options);
  return { exitCode, shown: shown.replaceAll('\r\u001b[K', ERASE) };
}

/** What a reader sees once everything has been drawn: what was erased is gone. */
function seen(shown: string): string {
  return shown
    .split('\n')
    .map(line => line.slice(line.lastIndexOf(ERASE) < 0 ? 0 : line.lastIndexOf(ERASE) + ERASE.length))
    .join('\n');
}

describeRoot('progress of catena try', () => {
  test('is one line of a terminal that is rewritten and removed', async () => {
    const { exitCode, shown } = await onTerminal(['try', '--color', 'never', LIST]);
    expect(exitCode).toBe(0);
    expect(shown).toMatch(/⌫try: (CHECK|probes|probes, DEL) \(\d+ s\)⌫/);
    expect(seen(shown)).not.toContain('try: ');
    expect(seen(shown)).toContain('\nleft behind: nothing');
  });

  test('is not shown with --json, nor on a dumb terminal', async () => {
    const json = await onTerminal(['try', '--json', LIST]);
    expect(JSON.parse(json.shown).ok).toBe(true);
    const dumb = await onTerminal(['try', LIST], { ...OPTIONS, env: { TERM: 'dumb' } });
    expect(dumb.shown).not.toContain('\u001b');
    expect(dumb.shown).not.toContain(ERASE);
  });

  test('is not in a pipe', async () => {
    const { stdout, stderr } = await run([CATENA, 'try', LIST], OPTIONS);
    for (const sign of ['\u001b', '\r', 'try: ']) expect(`${stdout}${stderr}`).not.toContain(sign);
  });
});

describeNeeding(
  'progress of catena compare',
  () => {
    test('names the scenario', async () => {
      const args = ['compare', LIST, '--with', REFERENCE_BIN_DIR, '--scene', 'life'];
      const { shown } = await onTerminal(args);
      expect(shown).toMatch(/⌫compare: scenario 1 of 1: life \(\d+ s\)/);
      expect(seen(shown)).not.toContain('compare: scenario');
    });
  },
  requiresReference(),
);

describeRoot('progress of catena conformance', () => {
  test('counts the rules', async () => {
    const args = ['conformance', path.join(BIN_DIR, 'tuning'), '--from', LIST];
    const { exitCode, shown } = await onTerminal(args);
    expect(exitCode).toBe(0);
    expect(shown).toMatch(/⌫conformance: rule \d+ of \d+ \(\d+ s\)/);
    expect(seen(shown)).not.toContain('conformance: rule');
  });
});
