// Which rules of the protocol do the reference's plugins keep? Prints the table.
import { afterAll, expect, test } from 'bun:test';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { endExamination, reportOn } from '../helpers/conformance.ts';
import { REFERENCE_BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';

const NAMES = existsSync(REFERENCE_BIN_DIR) ? readdirSync(REFERENCE_BIN_DIR).sort() : [];

describeRoot("catena conformance of the reference's plugins", () => {
  afterAll(endExamination);

  for (const name of NAMES) {
    test(`the reference's ${name} is examined to the end`, async () => {
      const { rules, supportedVersions } = await reportOn(join(REFERENCE_BIN_DIR, name));
      expect(supportedVersions).toContain('1.0.0');
      expect(rules.find(({ id }) => id === 'version/answers')?.outcome).toBe('kept');
      expect(rules.find(({ id }) => id === 'reply/error-version')?.outcome).toBe('broken');
    });
  }
});
