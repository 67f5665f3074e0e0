// Where do tests find promtool, which judges rules as Prometheus does?
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Need } from './skip.ts';
import { unpackedAt, unpackPackages } from './unpack.ts';

const UNPACKED = unpackedAt('prometheus');

/** The program. */
export const PROMTOOL = join(UNPACKED, 'usr/bin/promtool');

/** Whether a test file starts it. */
export function needsPromtool(file: string): boolean {
  return /^test\/e2e\/monitoring\.test\.ts$/.test(file);
}

/** Unpacks it, unless an earlier run did. @returns a line for the reader if it failed */
export function unpackPromtool(): Promise<string | undefined> {
  return unpackPackages(UNPACKED, ['prometheus']);
}

export function requiresPromtool(): Need {
  return existsSync(PROMTOOL) ? undefined : 'needs "prometheus" of Debian';
}
