// Does man show text as it was written?
import { expect, test } from 'bun:test';
import { escapeLiteral, escapeText, quoted } from '../../../../src/cli/man/page.ts';

test('text is no request, and characters beyond ASCII are named', () => {
  expect(escapeText(".SH is text\n'so is this\\n")).toBe("\\&.SH is text\n\\&'so is this\\en");
  expect(escapeText('<K=V;…>')).toBe('<K=V;\\[u2026]>');
});

test('what is to be typed can be copied', () => {
  expect(escapeLiteral(`--cap '{"a":1}' ~/x`)).toBe(`\\-\\-cap \\(aq{"a":1}\\(aq \\(ti/x`);
  expect(quoted('say "so"')).toBe('"say \\(dqso\\(dq"');
});
